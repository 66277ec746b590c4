// SPDX-License-Identifier: Apache-2.0

package step

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/sextant-node/sextant/test/stories"
)

// transitions are the arrows of the diagram in the package's comment, but the
// one out of it: "forgotten" is no state.
var transitions = map[State][]State{
	Pending:     {Syncing, Rejected, Terminating},
	Rejected:    {Syncing},
	Syncing:     {Terminating},
	Terminating: {Terminated},
	Terminated:  {Released, Terminating},
	Released:    {Pending, Terminating},
}

// reachable reports whether one step may lead from one state to another: it may go
// along several arrows where nothing is to be done on the way.
func reachable(from, to State) bool {
	if from == "" {
		from = Pending
	}
	seen := map[State]bool{}
	var along func(State) bool
	along = func(at State) bool {
		switch {
		case at == to:
			return true
		case seen[at]:
			return false
		case at == Released && from == Released: // it is looked at once more before it goes on
			return slices.Contains(transitions[at], to)
		case at == Released: // only what was given back begins anew
			return to == Pending
		}
		seen[at] = true
		return slices.ContainsFunc(transitions[at], along)
	}
	return along(from)
}

// TestEveryTransitionHasItsStory reads what the stories want, and finds each
// arrow of the diagram in at least one of them.
func TestEveryTransitionHasItsStory(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	const forgotten State = "forgotten"
	seen := map[[2]State]string{}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := State("")
		for line := range strings.Lines(string(stories.Part(a, "want"))) {
			to := at
			switch {
			case strings.HasPrefix(line, "t="):
				_, state, _ := strings.Cut(strings.TrimSpace(line), " ")
				to = State(state)
			case strings.TrimSpace(line) == "forget":
				to = forgotten
			}
			if at != "" && at != to {
				seen[[2]State{at, to}] = filepath.Base(file)
			}
			at = to
		}
	}
	for from, next := range transitions {
		for _, to := range next {
			if seen[[2]State{from, to}] == "" {
				t.Errorf("no story leads from %s to %s", from, to)
			}
		}
	}
	for _, from := range []State{Released, Rejected} {
		if seen[[2]State{from, forgotten}] == "" {
			t.Errorf("no story forgets a %s pod", from)
		}
	}
	for arrow, file := range seen {
		switch {
		case arrow[1] == forgotten && arrow[0] != Released && arrow[0] != Rejected:
			t.Errorf("%s: a %s pod is forgotten", file, arrow[0])
		case arrow[0] == forgotten || arrow[1] == forgotten: // a pod of the same UID may come back
		case !reachable(arrow[0], arrow[1]):
			t.Errorf("%s: from %s to %s", file, arrow[0], arrow[1])
		}
	}
}
