// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var errUnknown = errors.New("not known yet")

// given answers lookups from an archive's files.
type given struct {
	t     *testing.T
	files map[string]string
}

func read[T any](g given, file string) (*T, error) {
	text, ok := g.files[file]
	if !ok {
		return nil, errUnknown
	}
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		g.t.Fatalf("%s: %v", file, err)
	}
	return object, nil
}

func (g given) Claim(namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return read[v1.PersistentVolumeClaim](g, "claim/"+namespace+"/"+name)
}

func (g given) Volume(name string) (*v1.PersistentVolume, error) {
	return read[v1.PersistentVolume](g, "volume/"+name)
}

func (g given) Node() (*v1.Node, error) { return read[v1.Node](g, "node") }

// TestResolve judges every volume of the pod in each testdata/*.txtar. A base.txtar
// has the objects that others change.
func TestResolve(t *testing.T) {
	base, err := txtar.ParseFile("testdata/base.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(all) < 12 {
		t.Fatalf("%d cases, %v", len(all), err)
	}
	for _, file := range all {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			g := given{t, map[string]string{}}
			for _, f := range append(append([]txtar.File{}, base.Files...), a.Files...) {
				g.files[f.Name] = string(f.Data)
				if len(f.Data) == 0 {
					delete(g.files, f.Name) // not known
				}
			}
			p, err := read[v1.Pod](g, "pod")
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for i := range p.Spec.Volumes {
				v := &p.Spec.Volumes[i]
				s, err := Resolve(p, v, g)
				if err != nil {
					fmt.Fprintf(&got, "%s: error: %v (unknown: %v)\n", v.Name, err, errors.Is(err, errUnknown))
					continue
				}
				fmt.Fprintf(&got, "%s: %s of %s block=%v readOnly=%v exclusive=%v\n", v.Name, s.Volume.Name, s.Claim.Name, s.Block, s.ReadOnly, s.Exclusive())
			}
			if want := g.files["want"]; got.String() != want {
				t.Errorf("got\n%swant\n%s", got.String(), want)
			}
		})
	}
}
