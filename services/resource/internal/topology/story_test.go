// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/sextant-node/sextant/services/resource/internal/topology"
	"github.com/sextant-node/sextant/test/stories"
)

// TestStories replays testdata/*.txtar: "story" has lines, "want" what they answer.
//
//	node ID [DISTANCE...]            a NUMA node of the machine
//	policy NAME [SCOPE] [OPTION=VALUE...]
//	merge RESOURCE HINT... / ...     lists of hints by resource; a hint is 0,1+ for nodes 0 and
//	                                 1, preferred; any+ and any are hints without nodes; no hint
//	                                 at all is "impossible"; "nil" is no opinion
func TestStories(t *testing.T) {
	stories.Replay(t, 4, func(t *testing.T, a *txtar.Archive) string { return tell(t, string(stories.Part(a, "story"))) })
}

func tell(t *testing.T, story string) string {
	t.Helper()
	var out strings.Builder
	var nodes []topology.Node
	policy := &topology.Policy{}
	for line := range strings.Lines(story) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		fmt.Fprintln(&out, strings.Join(words, " "))
		switch words[0] {
		case "node":
			n := topology.Node{ID: number(t, words[1])}
			for _, w := range words[2:] {
				n.Distances = append(n.Distances, uint64(number(t, w)))
			}
			nodes = append(nodes, n)
		case "policy":
			s := topology.Settings{Policy: words[1], Options: map[string]string{}}
			for _, w := range words[2:] {
				if name, value, ok := strings.Cut(w, "="); ok {
					s.Options[name] = value
				} else {
					s.Scope = w
				}
			}
			made, err := topology.New(s, nodes)
			if err != nil {
				fmt.Fprintf(&out, "  error: %v\n", err)
				continue
			}
			policy = made
		case "merge":
			var all []topology.Hints
			for list := range strings.SplitSeq(strings.Join(words[1:], " "), "/") {
				words := strings.Fields(list)
				all = append(all, topology.Hints{words[0]: hints(t, words[1:])})
			}
			best, ok := policy.Merge(all)
			for _, reordered := range orders(all) {
				if b, o := policy.Merge(reordered); b != best || o != ok {
					t.Errorf("%s: %v %v in one order, %v %v in another", line, best, ok, b, o)
				}
			}
			fmt.Fprintf(&out, "  affinity %v preferred %v admitted %v\n", best.Affinity, best.Preferred, ok)
		default:
			t.Fatalf("no such command: %s", line)
		}
	}
	return out.String()
}

func orders(all []topology.Hints) [][]topology.Hints {
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	return [][]topology.Hints{reversed, append(slices.Clone(all[1:]), all[0])}
}

func hints(t *testing.T, words []string) []topology.Hint {
	t.Helper()
	if slices.Equal(words, []string{"nil"}) {
		return nil
	}
	list := []topology.Hint{}
	for _, w := range words {
		name, preferred := strings.CutSuffix(w, "+")
		h := topology.Hint{Preferred: preferred}
		if name != "any" {
			var ids []int
			for id := range strings.SplitSeq(name, ",") {
				ids = append(ids, number(t, id))
			}
			var err error
			if h.Affinity, err = topology.MaskOf(ids...); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, h)
	}
	return list
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
