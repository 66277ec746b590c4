// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pure is how the comment of a package says that it only judges: what it is held to.
var pure = regexp.MustCompile(`(?is)\bit\s+is\s+pure\b|\bvalues\s+in,\s+values\s+out\b`)

// pureCores are the packages of the product that call themselves pure, and those below
// pkg/pod, which says so for all.
func pureCores(t *testing.T) []string {
	t.Helper()
	var cores []string
	for _, p := range packages(t) {
		if within(p.ImportPath, "pkg/pod") || product(p.ImportPath) && pure.MatchString(comment(t, p)) {
			cores = append(cores, p.ImportPath)
		}
	}
	// Where judgements are made in each service: a comment that is reworded must not
	// take them out.
	for _, core := range []string{
		"services/config/internal/merge", "services/nodeapi/internal/stats", "services/pleg/internal/record",
		"services/podworker/internal/shutdown", "services/podworker/internal/step", "services/prober/internal/schedule",
		"services/resource/internal/admit", "services/status/internal/gather", "services/status/internal/plan", "services/volume/internal/demand",
	} {
		if !slices.Contains(cores, core) {
			t.Errorf("the comment of %s does not say that it is pure", core)
		}
	}
	return cores
}

// comment is the comment of a package.
func comment(t *testing.T, p pkg) string {
	t.Helper()
	var text strings.Builder
	for _, file := range p.GoFiles {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(parsed.Doc.Text())
	}
	return text.String()
}

// TestCoresHaveNoClock: time is an input of a judgement.
func TestCoresHaveNoClock(t *testing.T) {
	cores, checked := pureCores(t), 0
	for _, p := range packages(t) {
		if !slices.Contains(cores, p.ImportPath) {
			continue
		}
		for _, name := range p.GoFiles {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			checked++
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && ofTime(call, "Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep") {
					t.Errorf("%s/%s:%d asks a clock: the package calls itself pure", p.ImportPath, name, set.Position(n.Pos()).Line)
				}
				return true
			})
		}
	}
	if checked < 60 {
		t.Errorf("only %d files", checked)
	}
}
