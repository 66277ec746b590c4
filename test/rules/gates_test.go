// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// TestGatesThatAreRead: a gate that decides what a service does is honoured in the
// table of pkg/kubeletconfig, from which warnings and the node's declared features come.
func TestGatesThatAreRead(t *testing.T) {
	read := regexp.MustCompile(`\.Gate\("(\w+)"\)`)
	// The managers these belong to are refused; see kubeletconfig.
	refused := []string{"InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory"}
	support := map[string]kubeletconfig.Support{}
	for _, s := range kubeletconfig.GateSupport() {
		support[s.Name] = s
	}
	found := 0
	for _, p := range packages(t) {
		if !product(p.ImportPath) {
			continue
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range read.FindAllStringSubmatch(string(text), -1) {
				found++
				if s := support[m[1]]; !slices.Contains(refused, m[1]) && (s.Level != kubeletconfig.Honoured || len(s.Values) > 0) {
					t.Errorf("%s/%s reads %s, which the table has as %q", p.ImportPath, file, m[1], s)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d places that read a gate were found", found)
	}
}
