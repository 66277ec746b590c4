// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/pkg/house"
)

func names(c *cobra.Command) []string {
	var out []string
	for _, verb := range c.Commands() {
		out = append(out, verb.Name())
	}
	return out
}

// TestPartsAreLean: a process of the node holds its own verb only; everything else, and what
// is mistyped, sees all of them.
func TestPartsAreLean(t *testing.T) {
	all := names(Root())
	for _, verb := range []string{"run", "start", "supervise", string(house.Gate), string(house.Tools)} {
		if !slices.Contains(all, verb) {
			t.Errorf("without arguments there is no verb %s: %v", verb, all)
		}
		if got := names(Root(verb, "x")); !slices.Equal(got, []string{verb}) {
			t.Errorf("%s has the verbs %v", verb, got)
		}
	}
	for _, args := range [][]string{{"pods"}, {"up"}, {"help", "run"}, {"--help"}, {"rum"}} {
		if got := names(Root(args...)); !slices.Equal(got, all) {
			t.Errorf("%v: the verbs %v, want %v", args, got, all)
		}
	}
	for _, s := range house.Services() {
		run, _, err := Root("run", string(s)).Find([]string{"run"})
		if err != nil {
			t.Fatal(err)
		}
		if got := names(run); !slices.Equal(got, []string{string(s)}) {
			t.Errorf("run %s has %v", s, got)
		}
	}
	run, _, err := Root("run", "plge").Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(run); len(got) != len(house.Services()) {
		t.Errorf("run of no service has %v", got)
	}
}
