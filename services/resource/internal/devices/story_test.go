// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sextant-node/sextant/services/resource/internal/topology"
	"github.com/sextant-node/sextant/test/stories"
)

const name = "example.com/gpu"

// world is what a story tells of.
type world struct {
	choice Choice
	pod    *v1.Pod
	out    strings.Builder
}

// TestStories: each file says which devices there are, and what containers ask for.
//
//	device ID [unhealthy] [node=N]…   a device; node=none: it says it is near none
//	used ID…                          devices of other pods
//	state STATE [WHY]                 of the plugin
//	prefers ID…                       what the plugin would like, if it is asked
//	init|sidecar|app NAME NUMBER      a container
//	hints NAME · pod-hints            of a container, of the pod
//	allocate NAME [node=N]…           with an affinity
func TestStories(t *testing.T) {
	stories.Replay(t, 14, func(t *testing.T, a *txtar.Archive) string {
		w := &world{pod: &v1.Pod{}, choice: Choice{
			Inventory: Inventory{name: {State: Serving, Devices: map[string]Device{}}}, Used: map[string]sets.Set[string]{name: sets.New[string]()},
		}}
		for line := range strings.Lines(string(stories.Part(a, "story"))) {
			w.do(t, strings.Fields(line))
		}
		return w.out.String()
	})
}

func nodes(t *testing.T, words []string) (ids []int) {
	for _, w := range words {
		if text, ok := strings.CutPrefix(w, "node="); ok && text != "none" {
			id, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *world) do(t *testing.T, words []string) {
	r := w.choice.Inventory[name]
	switch words[0] {
	case "device":
		ids := nodes(t, words)
		r.Devices[words[1]] = Device{ID: words[1], Healthy: !slices.Contains(words, "unhealthy"), NUMA: len(ids) > 0 || slices.Contains(words, "node=none"), Nodes: ids}
	case "used":
		w.choice.Used[name].Insert(words[1:]...)
	case "state":
		r.State, r.Why, r.Since = State(words[1]), strings.Join(words[2:], " "), time.Time{}
	case "prefers":
		r.Prefers = true
		w.choice.Prefer = func(q Question) []string {
			fmt.Fprintf(&w.out, "asked for %d of %v with %v\n", q.Size, q.Available, q.Must)
			return words[1:]
		}
	case "init", "sidecar", "app":
		c := v1.Container{Name: words[1]}
		c.Resources.Limits = v1.ResourceList{name: resource.MustParse(words[2])}
		if words[0] == "app" {
			w.pod.Spec.Containers = append(w.pod.Spec.Containers, c)
			return
		}
		if always := v1.ContainerRestartPolicyAlways; words[0] == "sidecar" {
			c.RestartPolicy = &always
		}
		w.pod.Spec.InitContainers = append(w.pod.Spec.InitContainers, c)
	case "hints":
		w.hints(words[1], w.choice.Hints(w.pod, w.container(words[1])))
	case "pod-hints":
		w.hints("pod", w.choice.PodHints(w.pod))
	case "allocate":
		mask, err := topology.MaskOf(nodes(t, words)...)
		if err != nil {
			t.Fatal(err)
		}
		if wait := w.choice.Waits(w.pod); wait != nil {
			fmt.Fprintf(&w.out, "%s: %s\n", words[1], wait)
			return
		}
		had := len(w.choice.Given())
		if err := w.choice.Allocate(w.pod, w.container(words[1]), topology.Hint{Affinity: mask}); err != nil {
			fmt.Fprintf(&w.out, "%s: %s\n", words[1], topology.Refused(err).Message)
			return
		}
		for _, g := range w.choice.Given()[had:] {
			fmt.Fprintf(&w.out, "%s: %v\n", g.Container, IDs(g.Devices))
		}
	default:
		t.Fatalf("no such line: %v", words)
	}
}

func (w *world) container(name string) *v1.Container {
	for _, list := range [][]v1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func (w *world) hints(of string, hints topology.Hints) {
	list := hints[name]
	if list == nil {
		fmt.Fprintf(&w.out, "%s: no opinion\n", of)
		return
	}
	fmt.Fprintf(&w.out, "%s:", of)
	for _, h := range list {
		fmt.Fprintf(&w.out, " %v", h.Affinity)
		if h.Preferred {
			w.out.WriteString("!")
		}
	}
	w.out.WriteString("\n")
}
