// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/test/stories"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestStories replays each testdata/*.txtar. Commands:
//
//	groups PRIORITY=SECONDS…   the configuration
//	pod NAME PRIORITY          a pod runs
//	gone NAME…, told NAME…     it has ended, its end is known
//	logind true|false|away     what logind says
//	after DURATION             time passes
//	unknown, known             podworker was started again, and knows the pods again
//	boot NAME                  the machine was started again
//
// each followed by a step.
func TestStories(t *testing.T) {
	stories.Replay(t, 8, func(t *testing.T, a *txtar.Archive) string { return tell(t, string(stories.Part(a, "story"))) })
}

func tell(t *testing.T, story string) string {
	t.Helper()
	in := Input{Now: epoch, Boot: "first", Known: true}
	var out strings.Builder
	for line := range strings.Lines(story) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		do(t, &in, words)
		plan := Step(in)
		in.State = plan.State
		fmt.Fprintf(&out, "> %s\n%s", strings.TrimSpace(line), show(in, plan))
	}
	return out.String()
}

func do(t *testing.T, in *Input, words []string) {
	t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	set := func(change func(*Pod)) {
		for _, name := range words[1:] {
			at := slices.IndexFunc(in.Pods, func(p Pod) bool { return p.UID == types.UID(name) })
			change(&in.Pods[at])
		}
	}
	switch words[0] {
	case "groups":
		in.Groups = nil
		for _, pair := range words[1:] {
			priority, seconds, _ := strings.Cut(pair, "=")
			in.Groups = append(in.Groups, Group{int32(number(priority)), time.Duration(number(seconds)) * time.Second})
		}
		in.Groups = Sorted(in.Groups)
	case "pod":
		in.Pods = append(in.Pods, Pod{UID: types.UID(words[1]), Priority: int32(number(words[2]))})
	case "gone":
		set(func(p *Pod) { p.Gone = true })
	case "told":
		set(func(p *Pod) { p.Told = true })
	case "logind":
		in.Preparing = nil
		if words[1] != "away" {
			yes := words[1] == "true"
			in.Preparing = &yes
		}
	case "after":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		in.Now = in.Now.Add(d)
	case "unknown": // podworker has just been started
		in.Known, in.Preparing = false, nil
	case "known":
		in.Known = true
	case "boot":
		in.Boot, in.Preparing = words[1], nil
		for i := range in.Pods {
			in.Pods[i].Gone, in.Pods[i].Told = false, false
		}
	default:
		t.Fatalf("no such command: %v", words)
	}
}

func show(in Input, p Plan) string {
	var ending []string
	for _, pod := range in.Pods {
		if end, within := p.State.Turn(in.Groups, pod.Priority); end && !pod.Gone {
			ending = append(ending, fmt.Sprintf("%s within %s", pod.UID, within))
		}
	}
	stage := string(p.State.Stage)
	if stage == "" {
		stage = "staying"
	}
	text := fmt.Sprintf("t=%s %s", in.Now.Sub(epoch), stage)
	if p.Hold {
		text += ", holds"
	}
	if p.Change != Nothing {
		text += ", " + string(p.Change)
	}
	if len(ending) > 0 {
		text += ": " + strings.Join(ending, ", ")
	}
	if !p.WakeAt.IsZero() {
		text += fmt.Sprintf("; wake t=%s", p.WakeAt.Sub(epoch))
	}
	return text + "\n"
}

func TestGroupOfPriority(t *testing.T) {
	groups := Sorted([]Group{{Priority: 2_000_000_000}, {Priority: 0}, {Priority: 10000}})
	for priority, want := range map[int32]int{-5: 0, 0: 0, 9999: 0, 10000: 1, 1_999_999_999: 1, 2_000_000_000: 2, 2_000_001_000: 2} {
		if got := Of(groups, priority); got != want {
			t.Errorf("priority %d is in group %d, want %d", priority, got, want)
		}
	}
}
