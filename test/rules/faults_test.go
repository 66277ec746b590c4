// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestFaultPoints: a point at which a test may make a service fail or die is used by a
// test that names it, and a test names no point that is not there. A kill at the wrong
// instruction is what a journal is for; a point that no test hits proves nothing.
func TestFaultPoints(t *testing.T) {
	points, made := faultPoints(t)
	if len(points) < 25 {
		t.Fatalf("only %d fault points: %v", len(points), points)
	}
	var tests strings.Builder
	for _, name := range files(t) {
		if strings.HasSuffix(name, "_test.go") && !within(name, "test/rules") {
			tests.WriteString(read(t, name))
		}
	}
	text := tests.String()
	for _, point := range points {
		hit := regexp.MustCompile(`["=;\s` + "`" + `]` + regexp.QuoteMeta(point) + `["=\s` + "`" + `]`).MatchString(text)
		if !hit {
			t.Errorf("no test hits the fault point %s", point)
		}
	}
	services := regexp.MustCompile(`["` + "`" + `;]((?:config|file|podworker|prober|resource|status|store|volume)\.[a-z.]+)=(?:\d+\*)?(?:error|panic|pause|kill|off)\b`)
	for _, m := range services.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(points, m[1]) && !slices.ContainsFunc(made, func(prefix string) bool { return strings.HasPrefix(m[1], prefix) }) {
			t.Errorf("a test sets a fault at %s, which no code passes", m[1])
		}
	}
}

// faultPoints are the names in calls of fault.Hit, and the beginnings of names that are
// put together.
func faultPoints(t *testing.T) (points, made []string) {
	t.Helper()
	for _, name := range files(t) {
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || !product(name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); !ok || s.Sel.Name != "Hit" {
				return true
			}
			switch arg := call.Args[1].(type) {
			case *ast.BasicLit:
				text, err := strconv.Unquote(arg.Value)
				if err != nil {
					t.Fatal(err)
				}
				points = append(points, text)
			default:
				made = append(made, strings.SplitN(name, "/", 3)[1]+".")
			}
			return true
		})
	}
	slices.Sort(points)
	return slices.Compact(points), made
}
