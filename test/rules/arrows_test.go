// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxUpward is how many arrows may run back up between the files of a package: a handful.
const maxUpward = 5

// TestFilesOfAPackageHaveAnOrder: a file uses what stands in the files below it. However the
// files of a package of services are laid one above the other, some arrows may run back up,
// but no more than a handful: more of them are a tangle, which nobody can read from one end.
func TestFilesOfAPackageHaveAnOrder(t *testing.T) {
	load := loader(t)
	seen := 0
	for _, p := range packages(t) {
		if !within(p.ImportPath, "services") || len(p.GoFiles) < 2 {
			continue
		}
		seen++
		if up := upward(uses(t, load(t, p), p)); len(up) > maxUpward {
			t.Errorf("%s: %d arrows run back up between its files, at most %d:\n\t%s", p.ImportPath, len(up), maxUpward, strings.Join(up, "\n\t"))
		}
	}
	if seen < 60 {
		t.Errorf("only %d packages of several files", seen)
	}
}

// checked is a package with the objects that its names stand for.
type checked struct {
	set   *token.FileSet
	files []*ast.File
	pkg   *types.Package
	uses  map[*ast.Ident]types.Object
}

// loader returns what type-checks a package against the others' export data.
func loader(t *testing.T) func(t *testing.T, p pkg) checked {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", "./services/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var one struct{ ImportPath, Export string }
		if err := decoder.Decode(&one); err != nil {
			t.Fatal(err)
		}
		exports[one.ImportPath] = one.Export
	}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return func(t *testing.T, p pkg) checked {
		t.Helper()
		c := checked{set: set, uses: map[*ast.Ident]types.Object{}}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			c.files = append(c.files, f)
		}
		config := types.Config{Importer: imports}
		if c.pkg, err = config.Check(module+p.ImportPath, set, c.files, &types.Info{Uses: c.uses}); err != nil {
			t.Fatalf("%s: %v", p.ImportPath, err)
		}
		return c
	}
}

// uses are the files that each file of a package uses: their types, functions, methods,
// fields, constants and variables.
func uses(t *testing.T, c checked, p pkg) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, name := range p.GoFiles {
		all[name] = map[string]bool{}
	}
	for id, o := range c.uses {
		if o.Pkg() != c.pkg {
			continue
		}
		v, isVar := o.(*types.Var)
		_, isFunc := o.(*types.Func)
		if !isFunc && !(isVar && v.IsField()) && o.Parent() != c.pkg.Scope() {
			continue // of a function
		}
		from, to := filepath.Base(c.set.Position(id.Pos()).Filename), filepath.Base(c.set.Position(o.Pos()).Filename)
		if from != to {
			all[from][to] = true
		}
	}
	return all
}

// upward are the arrows that run back up in the order that has the fewest of them.
func upward(uses map[string]map[string]bool) (up []string) {
	for _, files := range circles(uses) {
		// Place the files from the top down. best is the least number of arrows that run back
		// up to the files placed, for each set of them.
		below := make([]uint32, len(files))
		for i, f := range files {
			for j, g := range files {
				if uses[f][g] {
					below[i] |= 1 << j
				}
			}
		}
		best, last := make([]int, 1<<len(files)), make([]int, 1<<len(files))
		for set := 1; set < len(best); set++ {
			best[set] = 1 << 30
			for i := range files {
				if former := set &^ (1 << i); former != set {
					if n := best[former] + bits.OnesCount32(below[i]&uint32(former)); n < best[set] {
						best[set], last[set] = n, i
					}
				}
			}
		}
		for set := len(best) - 1; set > 0; set &^= 1 << last[set] {
			for j := range files {
				if i := last[set]; i != j && set&(1<<j) != 0 && below[i]&(1<<j) != 0 {
					up = append(up, fmt.Sprintf("%s uses %s", files[i], files[j]))
				}
			}
		}
	}
	slices.Sort(up)
	return up
}

// circles are the sets of files of which each uses all others, by others of them or itself.
func circles(uses map[string]map[string]bool) (all [][]string) {
	reach := map[string]map[string]bool{}
	for f := range uses {
		reach[f] = map[string]bool{}
		for todo := []string{f}; len(todo) > 0; {
			next := todo[0]
			todo = todo[1:]
			for g := range uses[next] {
				if !reach[f][g] {
					reach[f][g] = true
					todo = append(todo, g)
				}
			}
		}
	}
	done := map[string]bool{}
	for _, f := range slices.Sorted(maps.Keys(uses)) {
		if done[f] || !reach[f][f] {
			continue
		}
		var circle []string
		for _, g := range slices.Sorted(maps.Keys(uses)) {
			if reach[f][g] && reach[g][f] {
				circle = append(circle, g)
				done[g] = true
			}
		}
		all = append(all, circle)
	}
	return all
}

func TestUpward(t *testing.T) {
	of := func(text string) map[string]map[string]bool {
		all := map[string]map[string]bool{}
		for _, line := range strings.Fields(text) {
			from, to, _ := strings.Cut(line, ">")
			for _, f := range []string{from, to} {
				if all[f] == nil {
					all[f] = map[string]bool{}
				}
			}
			all[from][to] = true
		}
		return all
	}
	for text, want := range map[string]int{
		"a>b b>c a>c":                     0,
		"a>b b>a":                         1,
		"a>b b>c c>a":                     1,
		"a>b b>c c>d d>b c>b x>y y>x":     2,
		"new>a new>b new>c a>new":         1,
		"a>b a>c b>c c>a c>b d>a d>b d>c": 2,
	} {
		if up := upward(of(text)); len(up) != want {
			t.Errorf("%s: %q, want %d", text, up, want)
		}
	}
}
