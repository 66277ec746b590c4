// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

const root = "../.."

// TestApply: every mutant fits the tree, and the package compiles with it. One that went
// stale fails here, not only in the hour-long run of all.
func TestApply(t *testing.T) {
	all, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	compile := compiler(t, all)
	for _, m := range all {
		source, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		changed, err := m.apply(string(source))
		if err == nil {
			err = compile(m.file, changed)
		}
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if err := compile(all[0].file, "package "); err == nil {
		t.Error("what is no Go compiles: the test sees nothing")
	}
}

// compiler checks the types of the package of a file, with another text of that file.
func compiler(t *testing.T, all []mutant) func(file, text string) error {
	t.Helper()
	var patterns []string
	for _, m := range all {
		patterns = append(patterns, "./"+filepath.Dir(m.file))
	}
	slices.Sort(patterns)
	fset := token.NewFileSet()
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile,
		Dir:  root, Fset: fset,
	}, slices.Compact(patterns)...)
	if err != nil {
		t.Fatal(err)
	}
	exports, folders := map[string]string{}, map[string]*packages.Package{}
	packages.Visit(loaded, nil, func(p *packages.Package) { exports[p.PkgPath] = p.ExportFile })
	for _, p := range loaded {
		if len(p.GoFiles) == 0 {
			t.Fatalf("%s: %v", p.ID, p.Errors)
		}
		folders[filepath.Dir(p.GoFiles[0])] = p
	}
	imports := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	return func(file, text string) error {
		path, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return err
		}
		p := folders[filepath.Dir(path)]
		var files []*ast.File
		for _, name := range p.CompiledGoFiles {
			var source any
			if name == path {
				source = text
			}
			parsed, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files = append(files, parsed)
		}
		_, err = imports.Check(p.PkgPath, fset, files, nil)
		return err
	}
}

func TestParse(t *testing.T) {
	const good = "=== one\nA promise.\nfile: a.go\ntest: ./a -run=B\n--- old\n\ta := 1\n--- new\n\ta := 2\n\n" +
		"=== two\nAnother\npromise.\nfile: b.go\ntest: ./b\n--- old\nx\n--- new\n--- old\ny\n--- new\nz\n"
	all, err := parse(good)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d mutants, %v", len(all), err)
	}
	if m := all[0]; m.name != "one" || m.file != "a.go" || len(m.test) != 2 || len(m.edits) != 1 || m.edits[0] != (edit{"\ta := 1", "\ta := 2"}) {
		t.Errorf("first: %+v", m)
	}
	if m := all[1]; m.promise != "Another promise." || len(m.edits) != 2 || m.edits[0] != (edit{"x", ""}) || m.edits[1] != (edit{"y", "z"}) {
		t.Errorf("second: %+v", m)
	}
	for bad, want := range map[string]string{
		"file: a.go\n" + good: "before the first",
		"=== one\nfile: a.go\ntest: ./a\n--- old\na\n--- new\nb\n":        "no promise",
		"=== one\nA promise.\nfile: a.go\n--- old\na\n--- new\nb\n":       "test: is missing",
		"=== one\nA promise.\nfile: a.go\ntest: ./a\n--- old\na\n":        "--- new",
		"=== a name\nA.\nfile: a.go\ntest: ./a\n--- old\na\n--- new\nb\n": "a space",
	} {
		if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestApplyOnce(t *testing.T) {
	m := mutant{file: "a.go", edits: []edit{{"one", "two"}}}
	if got, err := m.apply("one three"); err != nil || got != "two three" {
		t.Errorf("%q, %v", got, err)
	}
	for _, source := range []string{"three", "one one"} {
		if _, err := m.apply(source); err == nil {
			t.Errorf("applied to %q", source)
		}
	}
	same := mutant{file: "a.go", edits: []edit{{"one", "one"}}}
	if _, err := same.apply("one"); err == nil {
		t.Error("a mutant that changes nothing")
	}
}

// TestJudge: a mutant that does not compile, or that only makes tests wait until the
// time limit, is not killed.
func TestJudge(t *testing.T) {
	exit := errors.New("exit status 1")
	for out, want := range map[string]verdict{
		"--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\n":  {outcome: killed, detail: "by TestA and 1 more"},
		"--- FAIL: TestA (0.00s)\npanic: test timed out after 1s\n": {outcome: killed, detail: "by TestA"},
		"fatal error: all goroutines are asleep - deadlock!\n":      {outcome: killed, detail: "by a panic"},
	} {
		if got := judge(out, exit); got != want {
			t.Errorf("%q: %+v", out, got)
		}
	}
	for _, out := range []string{"a.go:1: undefined: x\nFAIL\ta [build failed]\n", "no required module\n", "", "panic: test timed out after 1s\n"} {
		if got := judge(out, exit); got.outcome != invalid {
			t.Errorf("%q: %+v", out, got)
		}
	}
	if got := judge("ok\n", nil); got.outcome != survived {
		t.Errorf("passed: %+v", got)
	}
}
