// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

var update = flag.Bool("update", false, "write what the stories give")

// TestStories replays testdata/*.txtar. A file named "say" is what the sources
// say, in this form, and the file "get" after it what comes of it:
//
//	file heard                  a source: heard or unheard, then perhaps its error
//	  a.yaml web:u1             an origin and its pods, name:uid
//	  b.yaml ! spec.x: bad      an origin that is broken
//	  c.yaml @3 db:u2           one that was removed and written again at 3
//	api heard
//	  - web:u9 ~web-n1:m1       ~ is a mirror pod
//	restart                     the process starts again from what it kept
//
// Sources listed nowhere are not configured. Time is the number of the step.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) { play(t, name) })
	}
}

// TestUIDsAreNames: a pod of any source whose UID would lead to another place on the
// disk is one problem, and the others stay.
func TestUIDsAreNames(t *testing.T) {
	named := func(name, uid string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(uid)}}
	}
	for _, source := range []string{pod.SourceAPI, pod.SourceFile} {
		next := Next(State{}, []Listing{{Source: source, Heard: true, Entries: []Entry{
			{Pods: []*v1.Pod{named("a", "../../etc"), named("b", "good"), named("c", ".."), named("d", "")}},
		}}}, time.Unix(1, 0))
		if len(next.Pods) != 1 || next.Pods["good"] == nil {
			t.Errorf("%s: accepted %v", source, slices.Collect(maps.Keys(next.Pods)))
		}
		problems := next.Sources[0].Problems
		if len(problems) != 3 || problems[0].Field != "metadata.uid" || !strings.Contains(problems[0].Message, `"../../etc"`) {
			t.Errorf("%s: problems %+v", source, problems)
		}
	}
}

func play(t *testing.T, name string) {
	story, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	state, raw, step := State{}, map[string]*v1.Pod{}, 0
	var got string
	for i := range story.Files {
		f := &story.Files[i]
		switch f.Name {
		case "say":
			step++
			listings, restart := parse(t, string(f.Data), raw)
			if restart {
				state = restarted(state)
			}
			next := Next(state, listings, at(step))
			got = render(state, next)
			state = next
		case "get":
			if *update {
				f.Data = []byte(got)
			} else if want := string(f.Data); got != want {
				t.Errorf("step %d\n--- got\n%s--- want\n%s", step, got, want)
			}
		default:
			t.Fatalf("file %q: want say or get", f.Name)
		}
	}
	if *update {
		if err := os.WriteFile(name, txtar.Format(story), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func every(*Pod) bool { return true }

func at(step int) time.Time { return time.Unix(int64(step), 0).UTC() }

// restarted is the state an earlier life leaves behind.
func restarted(was State) State {
	var kept []*Pod
	for _, p := range sorted(was.Pods, every) {
		kept = append(kept, &Pod{Pod: p.Pod.DeepCopy(), Source: p.Source, Origin: p.Origin, Seen: p.Seen, Begun: p.Begun})
	}
	return Restore(kept)
}

func parse(t *testing.T, text string, raw map[string]*v1.Pod) (all []Listing, restart bool) {
	t.Helper()
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "restart":
			restart = true
			clear(raw)
		case !strings.HasPrefix(line, " "):
			all = append(all, Listing{Source: words[0], Heard: words[1] == "heard", Err: strings.Join(words[2:], " ")})
		default:
			l := &all[len(all)-1]
			e := Entry{Origin: strings.TrimPrefix(words[0], "-")}
			if len(words) > 1 && words[1] == "!" {
				e.Problem = &Problem{Origin: e.Origin, Field: strings.TrimSuffix(words[2], ":"), Message: strings.Join(words[3:], " ")}
				words = nil
			}
			for _, w := range words[min(1, len(words)):] {
				if n, ok := strings.CutPrefix(w, "@"); ok {
					step, err := strconv.Atoi(n)
					if err != nil {
						t.Fatal(err)
					}
					e.Rewritten = at(step)
					continue
				}
				e.Pods = append(e.Pods, give(raw, l.Source+e.Origin, w))
			}
			l.Entries = append(l.Entries, e)
		}
	}
	return all, restart
}

// give makes the pod that a source gives; the same words are the same pointer,
// as from a source that saw no change.
func give(raw map[string]*v1.Pod, origin, word string) *v1.Pod {
	if p, ok := raw[origin+word]; ok {
		return p
	}
	name, uid, _ := strings.Cut(strings.TrimPrefix(word, "~"), ":")
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(uid)}}
	if strings.HasPrefix(word, "~") {
		p.Annotations = map[string]string{pod.ConfigMirrorAnnotation: "hash"}
	}
	raw[origin+word] = p
	return p
}

// render writes a state down, with what Compare says about the way to it.
func render(was, next State) string {
	var b strings.Builder
	for _, p := range sorted(next.Pods, every) {
		fmt.Fprintf(&b, "pod %s:%s from %s", p.Pod.Name, p.Pod.UID, p.Source)
		if p.Origin != "" {
			fmt.Fprintf(&b, " %s", p.Origin)
		}
		fmt.Fprintf(&b, " seen %d", p.Seen.Unix())
		if !p.Begun.IsZero() {
			fmt.Fprintf(&b, " begun %d", p.Begun.Unix())
		}
		if p.Mirror != nil {
			fmt.Fprintf(&b, " mirror %s", p.Mirror.UID)
		}
		b.WriteString("\n")
	}
	for _, m := range slices.Sorted(maps.Keys(next.Mirrors)) {
		fmt.Fprintf(&b, "mirror %s\n", m)
	}
	for _, s := range next.Sources {
		for _, p := range s.Problems {
			fmt.Fprintf(&b, "problem %s %s: %s: %s\n", s.Name, p.Origin, p.Field, p.Message)
		}
	}
	diff := Compare(was, next)
	for _, uid := range diff.Removed {
		fmt.Fprintf(&b, "- %s\n", uid)
	}
	for _, p := range diff.Changed {
		fmt.Fprintf(&b, "+ %s\n", p.Pod.UID)
	}
	for _, p := range diff.Reported {
		fmt.Fprintf(&b, "= %s\n", p.Pod.UID)
	}
	fmt.Fprintf(&b, "complete %v mirrors known %v\n", next.Complete, next.MirrorsKnown)
	return b.String()
}

// TestWrittenAgainAfterTheClockWasSetBack: a manifest that is removed and written again begins
// anew, later than before in the eyes of whoever reads it, and once.
func TestWrittenAgainAfterTheClockWasSetBack(t *testing.T) {
	raw := map[string]*v1.Pod{}
	read := func(was State, now int, rewritten time.Time) (next State, begun time.Time) {
		next = Next(was, []Listing{{Source: pod.SourceFile, Heard: true, Entries: []Entry{
			{Origin: "a.yaml", Rewritten: rewritten, Pods: []*v1.Pod{give(raw, "a.yaml", "web:u1")}},
		}}}, at(now))
		return next, next.Pods["u1"].Begun
	}
	state, _ := read(State{}, 100, time.Time{})
	state, first := read(state, 200, at(200))
	state, second := read(state, 150, at(150))
	if !second.After(first) {
		t.Errorf("written again, it began at %v, and at %v before", second, first)
	}
	state, third := read(restarted(state), 160, at(160))
	if !third.After(second) {
		t.Errorf("written again after a restart, it began at %v, and at %v before", third, second)
	}
	if next, begun := read(state, 170, at(160)); !begun.Equal(third) || len(Compare(state, next).Changed) > 0 {
		t.Errorf("nothing was written, and it began at %v", begun)
	}
}

func TestAnnotations(t *testing.T) {
	given := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "ns", UID: "u", Annotations: map[string]string{pod.ConfigSourceAnnotation: pod.SourceFile, "a": "b"},
	}}
	state := Next(State{}, []Listing{{Source: pod.SourceAPI, Heard: true, Entries: []Entry{{Pods: []*v1.Pod{given}}}}}, at(7))
	want := map[string]string{
		pod.ConfigSourceAnnotation: pod.SourceAPI, // whatever the object claims
		pod.ConfigSeenAnnotation:   "1970-01-01T00:00:07Z",
		"a":                        "b",
	}
	if got := state.Pods["u"].Pod.Annotations; !maps.Equal(got, want) {
		t.Errorf("annotations %v, want %v", got, want)
	}
	if given.Annotations[pod.ConfigSourceAnnotation] != pod.SourceFile {
		t.Error("the source's own pod was written to")
	}
}

// TestTheClaimsOfAPodAreAChange: their names are in the pod's status, and the node prepares
// them; the rest of the status changes nothing that the node does.
func TestTheClaimsOfAPodAreAChange(t *testing.T) {
	name := "p-gpu-1"
	with := func(status v1.PodStatus) State {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"}, Status: status}
		return Next(State{}, []Listing{{Source: pod.SourceAPI, Heard: true, Entries: []Entry{{Pods: []*v1.Pod{p}}}}}, at(7))
	}
	for what, c := range map[string]struct {
		status  v1.PodStatus
		changed bool
	}{
		"a claim":                    {v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}}}, true},
		"that of extended resources": {v1.PodStatus{ExtendedResourceClaimStatus: &v1.PodExtendedResourceClaimStatus{ResourceClaimName: name}}, true},
		"a message":                  {v1.PodStatus{Message: "m"}, false},
	} {
		diff := Compare(with(v1.PodStatus{}), with(c.status))
		if got := len(diff.Changed) == 1; got != c.changed || len(diff.Reported) == 1 == got {
			t.Errorf("%s: %+v", what, diff)
		}
	}
}
