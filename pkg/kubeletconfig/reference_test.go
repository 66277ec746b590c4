// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const (
	dirMode  = fs.ModeDir | 0o755
	pipeMode = fs.ModeNamedPipe
)

// emptyFS is a machine without files.
var emptyFS = fstest.MapFS{}

var update = flag.Bool("update", false, "rewrite golden files with what the code does now")

// golden holds got against a file of testdata/golden.
func golden(t *testing.T, name string, got any) map[string]any {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetIndent("", "  ")
		if err := enc.Encode(got); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	return want
}

// The golden files were written by the reference kubelet's own code.
func TestDefaultsGolden(t *testing.T) {
	for name, s := range map[string]setup{
		"legacy.json": {},
		"file.json":   {args: withAPI(), config: new("")},
	} {
		t.Run(name, func(t *testing.T) {
			c, warnings := s.mustLoad(t)
			got := asJSON(t, c.Kubelet)
			if d := cmp.Diff(golden(t, name, got), got); d != "" {
				t.Errorf("effective configuration (-want +got):\n%s", d)
			}
			for _, w := range warnings {
				if !slices.Contains(missingByDefault, w.Name) {
					t.Errorf("a default warns: %s", w)
				}
			}
		})
	}
}

// referenceCase is one line of testdata/reference.jsonl: what the reference
// kubelet, v1.36.3, made of flags, a file and drop-ins. Changed is the
// difference to the defaults as a JSON merge patch.
type referenceCase struct {
	Name    string         `json:"name"`
	Args    []string       `json:"args"`
	Config  *string        `json:"config"`
	DropIns []string       `json:"dropIns"`
	Refused bool           `json:"refused"`
	Changed map[string]any `json:"changed"`
}

func TestSameAsReferenceKubelet(t *testing.T) {
	raw, err := os.ReadFile("testdata/reference.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	base := map[bool]map[string]any{false: golden(t, "legacy.json", nil), true: golden(t, "file.json", nil)}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		n++
		var c referenceCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			s := setup{args: withAPI(c.Args...), config: c.Config}
			for i, d := range c.DropIns {
				if s.dropIns == nil {
					s.dropIns = map[string]string{}
				}
				s.dropIns[fmt.Sprintf("%02d.conf", i)] = d
			}
			got, _, err := s.load(t)
			if c.Refused || err != nil {
				if c.Refused != (err != nil) {
					t.Errorf("reference refuses: %t, got %v", c.Refused, err)
				}
				return
			}
			want := mergePatch(base[c.Config != nil], c.Changed)
			if d := cmp.Diff(want, asJSON(t, got.Kubelet)); d != "" {
				t.Errorf("effective configuration (-reference +got):\n%s", d)
			}
		})
	}
	if n < 200 {
		t.Errorf("only %d cases", n)
	}
}

// mergePatch is RFC 7386, written apart from the library under test.
func mergePatch(base, patch map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range base {
		out[k] = v
	}
	for k, v := range patch {
		sub, isMap := v.(map[string]any)
		old, wasMap := out[k].(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case isMap && wasMap:
			out[k] = mergePatch(old, sub)
		default:
			out[k] = v
		}
	}
	return out
}

// The flag list was printed by the reference kubelet.
func TestFlagsAreThoseOfTheReferenceKubelet(t *testing.T) {
	raw, err := os.ReadFile("testdata/flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		if f := strings.Split(line, "\t"); len(f) == 4 {
			want[f[0]] = strings.Join(f[1:], " ")
		}
	}
	got := map[string]string{}
	for _, f := range registered(t) {
		// Registered in order to be refused by name, as this is no Windows build.
		if strings.HasPrefix(f.Name, "windows-") {
			continue
		}
		got[f.Name] = strings.Join([]string{orDash(f.Shorthand), orDash(f.DefValue), f.Value.Type()}, " ")
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("flags (-reference +got):\n%s", d)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
