// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sleepers are the functions of tests that let time go by on purpose, each with its
// reason.
var sleepers = map[string]string{
	"services/prober.BenchmarkExecLateness": "the time itself is measured",
	"test/machine.cuts":                     "the power goes at a random moment",
	"test/machine.clock":                    "the time itself is measured",
}

// TestNoSleepInTests: time is an input, or a channel says when. Neither time.Sleep nor a
// timer that nothing else can end is allowed in tests and in what they share. A loop that
// looks at another process again and again may pause; in the bubbles of testing/synctest
// waiting costs nothing.
func TestNoSleepInTests(t *testing.T) {
	free := func(name string, file *ast.File) bool {
		return file.Name.Name == "main" && !strings.HasSuffix(name, "_test.go") || // a program that tests run
			slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
	}
	inTests(t, sleepers, free, sleeps, "sleeps: wait for what it waits for", "does not sleep any more")
}

// inTests reports what find finds in the functions of tests and of what they share, but
// for the places in allowed, which hold the reasons, and for files that are free of the
// rule. A place that needs its permission no more is reported, too.
func inTests(t *testing.T, allowed map[string]string, free func(string, *ast.File) bool, find func(ast.Node) []token.Pos, fault, needless string) {
	t.Helper()
	checked, used := 0, map[string]bool{}
	for _, name := range files(t) {
		if filepath.Ext(name) != ".go" || !strings.HasSuffix(name, "_test.go") && !within(name, "test") || within(name, "test/rules") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		if free != nil && free(name, file) {
			continue
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			place := filepath.Dir(name) + "." + f.Name.Name
			for _, at := range find(f) {
				used[place] = true
				if allowed[place] == "" {
					t.Errorf("%s:%d: %s %s", name, set.Position(at).Line, f.Name.Name, fault)
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d files", checked)
	}
	for place := range allowed {
		if !used[place] {
			t.Errorf("%s %s: take it out of the list", place, needless)
		}
	}
}

// sleeps finds calls of time.Sleep, and receives from time.After or time.Tick that are
// neither a case of a select with others nor the pause of a loop that ends otherwise.
func sleeps(f ast.Node) (at []token.Pos) {
	allowed := map[ast.Node]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectStmt:
			for _, c := range n.Body.List {
				if e, ok := c.(*ast.CommClause).Comm.(*ast.ExprStmt); ok && len(n.Body.List) > 1 {
					allowed[e.X] = true
				}
			}
		case *ast.ForStmt:
			last := n.Body.List[max(0, len(n.Body.List)-1):]
			if len(n.Body.List) > 1 {
				if e, ok := last[0].(*ast.ExprStmt); ok {
					allowed[e.X] = true
				}
			}
		}
		return true
	})
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if ofTime(n, "Sleep") {
				at = append(at, n.Pos())
			}
		case *ast.UnaryExpr:
			if call, ok := n.X.(*ast.CallExpr); ok && n.Op == token.ARROW && !allowed[n] && ofTime(call, "After", "Tick") {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

// ofTime reports whether a call is of one of these functions of package time.
func ofTime(call *ast.CallExpr, names ...string) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, s.Sel.Name) {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "time"
}

// TestSleeps: the rule sees what it is to see.
func TestSleeps(t *testing.T) {
	const source = `package p
func f() {
	time.Sleep(1)
	<-time.After(1)
	select { case <-time.After(1): }
	select { case <-done: case <-time.After(1): }
	for range time.Tick(1) {}
	at := <-time.After(1)
	for { if done() { break }; <-time.After(1) }
	for { <-time.After(1) }
}`
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, at := range sleeps(file) {
		lines = append(lines, set.Position(at).Line)
	}
	if want := []int{3, 4, 5, 8, 10}; !slices.Equal(lines, want) {
		t.Errorf("sleeps in lines %v, want %v", lines, want)
	}
}
