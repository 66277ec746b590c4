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

// TestSecondsAreBounded: a number of seconds, minutes or hours that is no constant becomes
// a time.Duration by pod.Seconds, which has a bound. Multiplied, 2^63-1, which people
// write for "never", is -1 s.
func TestSecondsAreBounded(t *testing.T) {
	checked := 0
	for _, name := range files(t) {
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || within(name, "test") || name == "pkg/pod/seconds.go" {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for _, at := range products(file) {
			t.Errorf("%s:%d: a Duration of seconds without bound: use pod.Seconds", name, set.Position(at).Line)
		}
	}
	if checked < 300 {
		t.Errorf("only %d files", checked)
	}
}

// products finds time.Duration(x) times time.Second, time.Minute or time.Hour, x being no
// constant.
func products(n ast.Node) (at []token.Pos) {
	ast.Inspect(n, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if !ok || b.Op != token.MUL {
			return true
		}
		sides := []ast.Expr{b.X, b.Y}
		unit := slices.ContainsFunc(sides, func(e ast.Expr) bool {
			return isTime(e, "Second") || isTime(e, "Minute") || isTime(e, "Hour")
		})
		converted := slices.ContainsFunc(sides, func(e ast.Expr) bool {
			call, ok := e.(*ast.CallExpr)
			if !ok {
				return false
			}
			if !isTime(call.Fun, "Duration") {
				return true // min(time.Duration(x), y) and the like
			}
			_, constant := call.Args[0].(*ast.BasicLit)
			return !constant
		})
		if unit && converted {
			at = append(at, b.Pos())
		}
		return true
	})
	return at
}

func isTime(e ast.Expr, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "time" && s.Sel.Name == name
}

func TestProducts(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "a.go", `package a
var good = []any{2 * time.Second, time.Duration(3) * time.Hour, pod.Seconds(n), time.Duration(n) * (time.Second / 100)}
var bad = []any{time.Duration(n) * time.Second, time.Minute * time.Duration(a.b), min(time.Duration(n), 3) * time.Second}
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if at := products(file); len(at) != 3 {
		t.Errorf("found %d, want 3", len(at))
	}
}
