// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLinkedIn: every process of the node runs the one program, so what a package
// prepares at start is paid for ten times (docs/measurements.md).
func TestLinkedIn(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-tags="+buildTags(t), "./cmd/sextant")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, "google.golang.org/grpc") {
		t.Fatal("not the packages of the program")
	}
	for path, reason := range map[string]string{
		"html/template":          "templates find methods by name: the linker then keeps every method of every type, a fourth of the program",
		"golang.org/x/net/trace": "brings html/template, and pages nobody serves",
	} {
		if slices.Contains(linked, path) {
			t.Errorf("the program has %s linked in: %s", path, reason)
		}
	}
}

// TestLeanSources: what the linker and the start of each process depend on.
func TestLeanSources(t *testing.T) {
	checked := 0
	for _, p := range packages(t) {
		if !product(p.ImportPath) {
			continue
		}
		if slices.Contains(p.Imports, "text/template") {
			t.Errorf("%s imports text/template: it finds methods by name, so that the linker keeps all there are", p.ImportPath)
		}
		for _, file := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			checked++
			if strings.Contains(string(source), "regexp.MustCompile(") && p.ImportPath != "pkg/pattern" {
				t.Errorf("%s/%s compiles a regular expression at start, in every process: use pattern.Lazy", p.ImportPath, file)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d files", checked)
	}
}
