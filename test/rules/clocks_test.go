// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// steppers are the functions of tests that step a fake clock until something happens, and
// bound how far.
var steppers = map[string]string{
	"test/fakeclock.Pass":       "it is given how far",
	"services/podworker.within": "two minutes",
}

// TestFakeTimeIsBounded: a fake clock that is stepped until something happens hides what
// takes hours. A loop steps a clock a number of times that it says, or is one of those
// above; a condition that is waited for steps none.
func TestFakeTimeIsBounded(t *testing.T) {
	inTests(t, steppers, nil, unboundedSteps,
		"steps a clock until something happens: fakeclock.Pass does, within a bound", "steps no clock any more")
}

// unboundedSteps finds calls of a clock's Step in loops that count nothing, and in
// functions that are handed to another one to be called again and again.
func unboundedSteps(f ast.Node) (at []token.Pos) {
	steps := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Step" && len(call.Args) == 1 && isClock(s.X) {
					at = append(at, call.Pos())
				}
			}
			return true
		})
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt:
			if n.Post == nil {
				steps(n.Body)
				return false
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && isWait(s.Sel.Name) {
				for _, arg := range n.Args {
					if f, ok := arg.(*ast.FuncLit); ok {
						steps(f.Body)
					}
				}
			}
		}
		return true
	})
	return at
}

// isClock reports whether an expression is called a clock.
func isClock(x ast.Expr) bool {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return name == "clk" || name == "now" || strings.HasSuffix(strings.ToLower(name), "clock")
}

// isWait reports whether a function waits for a condition.
func isWait(name string) bool {
	switch strings.ToLower(name) {
	case "eventually", "until", "pass", "within", "waitfor":
		return true
	}
	return false
}

func TestUnboundedSteps(t *testing.T) {
	for body, want := range map[string]int{
		"for { clock.Step(1) }":                                                  1,
		"for time.Now().Before(limit) { n.clock.Step(1) }":                       1,
		`r.Eventually("x", func() bool { clock.Step(1); return ok() })`:          1,
		"for i := 0; i < 10; i++ { clock.Step(1) }; for range 9 { clk.Step(1) }": 0,
		"clock.Step(1); step.Step(in); trial.Step(at)":                           0,
		"for { trial.Step(at) }":                                                 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\nfunc f() {"+body+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := unboundedSteps(file); len(got) != want {
			t.Errorf("%s: %d, want %d", body, len(got), want)
		}
	}
}
