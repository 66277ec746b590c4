// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// Each archive in testdata/hostports holds the nat table before (file rules) and
// the iptables calls that clean network "ours" out of it (file want).
func TestHostPortCleanup(t *testing.T) {
	files, err := filepath.Glob("testdata/hostports/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			a, err := txtar.ParseFile(f)
			if err != nil {
				t.Fatal(err)
			}
			part := map[string]string{}
			for _, s := range a.Files {
				part[s.Name] = string(s.Data)
			}
			var got strings.Builder
			for _, args := range hostPortCleanup(strings.Split(part["rules"], "\n"), "ours") {
				got.WriteString(strings.Join(args, "|") + "\n")
			}
			if *update {
				for i := range a.Files {
					if a.Files[i].Name == "want" {
						a.Files[i].Data = []byte(got.String())
					}
				}
				if err := os.WriteFile(f, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(part["want"], got.String()); d != "" {
				t.Errorf("calls differ (-want +got):\n%s", d)
			}
		})
	}
}

func TestSplitRule(t *testing.T) {
	for rule, want := range map[string][]string{
		``:                              nil,
		`-N A`:                          {"-N", "A"},
		`-A A --comment "a \"b\" c" -j`: {"-A", "A", "--comment", `a "b" c`, "-j"},
		`-A A --comment ""`:             {"-A", "A", "--comment", ""},
		`  -A   A  `:                    {"-A", "A"},
	} {
		if d := cmp.Diff(want, splitRule(rule)); d != "" {
			t.Errorf("splitRule(%q):\n%s", rule, d)
		}
	}
}
