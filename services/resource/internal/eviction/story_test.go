// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
	"github.com/sextant-node/sextant/test/stories"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestStories replays testdata/*.txtar. The first part is the configuration, a
// KubeletConfiguration; "pods" are the pods, a list by name; "story" has the commands:
//
//	layout single|dedicated|split    where images and writable layers are
//	capacity SIGNAL QUANTITY         of a signal, for all observations to come
//	SIGNAL QUANTITY|gone             what is observed of a signal in each pass from now on
//	frozen, thawed                   observations keep their time, or have each pass's
//	use POD PART QUANTITY[/INODES]   what a pod uses: memory, processes, threads, volume:NAME, other,
//	                                 CONTAINER:memory, CONTAINER:root, CONTAINER:logs
//	layers AGE                       writable layers were measured so long before each pass; 0s
//	unmeasured POD                   nothing is known of what it uses
//	gone POD                         the pod is not there any more
//	leaving, left                    a pod evicted before is on its way, or gone
//	reclaimed                        what was to be reclaimed is: a pass
//	pass [DURATION]                  time passes, then a pass
func TestStories(t *testing.T) {
	stories.Replay(t, 15, tell)
}

// story is what a file says.
type story struct {
	testing.TB
	kubelet  kubeletv1beta1.KubeletConfiguration
	in       eviction.Input
	capacity map[string]int64
	frozen   bool
	layers   time.Duration
	out      strings.Builder
}

func tell(t *testing.T, a *txtar.Archive) string {
	t.Helper()
	s := &story{TB: t, capacity: map[string]int64{}, in: eviction.Input{Now: epoch, Observed: map[string]eviction.Observation{}}}
	s.in.Config.Layout = eviction.Single
	commands := ""
	for _, f := range a.Files {
		switch f.Name {
		case "config":
			if err := yaml.UnmarshalStrict(f.Data, &s.kubelet); err != nil {
				t.Fatal(err)
			}
		case "pods":
			s.pods(f.Data)
		case "story":
			commands = string(f.Data)
		}
	}
	for line := range strings.Lines(commands) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			if !s.do(words) {
				t.Fatalf("no such command: %s", line)
			}
		}
	}
	return s.out.String()
}

func (s *story) pods(data []byte) {
	s.Helper()
	all := map[string]*v1.Pod{}
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		s.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		p.Name, p.Namespace, p.UID = name, "ns", types.UID(name)
		s.in.Pods = append(s.in.Pods, eviction.Pod{Pod: p, Usage: &eviction.Usage{Volumes: map[string]eviction.Files{}}})
	}
}

func (s *story) number(text string) int64 {
	s.Helper()
	q, err := resource.ParseQuantity(text)
	if err != nil {
		s.Fatalf("%s: %v", text, err)
	}
	return q.Value()
}

func (s *story) pod(name string) *eviction.Pod {
	s.Helper()
	i := slices.IndexFunc(s.in.Pods, func(p eviction.Pod) bool { return p.Name == name })
	if i < 0 {
		s.Fatalf("no pod %s", name)
	}
	return &s.in.Pods[i]
}

func (s *story) do(words []string) bool {
	s.Helper()
	switch words[0] {
	case "layout":
		s.in.Config.Layout = eviction.Layout(words[1])
	case "capacity":
		s.capacity[words[1]] = s.number(words[2])
	case "frozen", "thawed":
		s.frozen = words[0] == "frozen"
	case "use":
		s.use(s.pod(words[1]), words[2], words[3])
	case "unmeasured":
		s.pod(words[1]).Usage = nil
	case "gone":
		s.in.Pods = slices.DeleteFunc(s.in.Pods, func(p eviction.Pod) bool { return p.Name == words[1] })
	case "layers":
		age, err := time.ParseDuration(words[1])
		if err != nil {
			s.Fatal(err)
		}
		s.layers = age
	case "leaving", "left":
		if s.in.Leaving = words[0] == "leaving"; !s.in.Leaving {
			s.in.Left = s.in.Now
		}
	case "reclaimed":
		s.in.Reclaimed = true
		s.pass("reclaimed")
	case "pass":
		if len(words) > 1 {
			d, err := time.ParseDuration(words[1])
			if err != nil {
				s.Fatal(err)
			}
			s.in.Now = s.in.Now.Add(d)
		}
		s.pass("pass")
	default:
		if !strings.Contains(words[0], ".") {
			return false
		}
		if delete(s.in.Observed, words[0]); words[1] != "gone" {
			s.in.Observed[words[0]] = eviction.Observation{Available: s.number(words[1]), Capacity: s.capacity[words[0]], Time: s.in.Now}
		}
	}
	return true
}

func (s *story) use(p *eviction.Pod, part, amount string) {
	s.Helper()
	text, rest, _ := strings.Cut(amount, "/")
	n, files := s.number(text), eviction.Files{}
	if files.Bytes = n; rest != "" {
		files.Inodes = s.number(rest)
	}
	name, of, inner := strings.Cut(part, ":")
	switch {
	case part == "memory":
		p.Usage.Memory = &n
	case part == "processes":
		p.Usage.Processes = n
	case part == "threads":
		p.Usage.Threads = n
	case part == "other":
		p.Usage.Other = files
	case name == "volume":
		p.Usage.Volumes[of] = files
	case inner:
		i := slices.IndexFunc(p.Usage.Containers, func(c eviction.Container) bool { return c.Name == name })
		if i < 0 {
			p.Usage.Containers, i = append(p.Usage.Containers, eviction.Container{Name: name}), len(p.Usage.Containers)
		}
		switch c := &p.Usage.Containers[i]; of {
		case "memory":
			c.Memory = &n
		case "root":
			c.Root = &files
		case "logs":
			c.Logs = &files
		}
	default:
		s.Fatalf("no part %s", part)
	}
}

func (s *story) pass(what string) {
	s.Helper()
	if !s.frozen {
		for signal, o := range s.in.Observed {
			o.Time = s.in.Now
			s.in.Observed[signal] = o
		}
	}
	c := &s.in.Config
	conf := kubeletconfig.Config{Kubelet: s.kubelet}
	c.Thresholds = eviction.Thresholds(conf.EvictionThresholds(), slices.Contains(s.kubelet.EnforceNodeAllocatable, "pods"), c.Layout)
	c.Transition, c.MaxPodGrace = s.kubelet.EvictionPressureTransitionPeriod.Duration, int64(s.kubelet.EvictionMaxPodGracePeriod)
	c.Isolation = s.kubelet.LocalStorageCapacityIsolation == nil || *s.kubelet.LocalStorageCapacityIsolation
	s.in.Layers = s.in.Now.Add(-s.layers)
	out := eviction.Step(s.in)
	s.in.History, s.in.Reclaimed = out.History, false
	fmt.Fprintf(&s.out, "t=%s %s\n", s.in.Now.Sub(epoch), what)
	for _, name := range slices.Sorted(maps.Keys(out.History.Conditions)) {
		if c := out.History.Conditions[name]; c.Under {
			fmt.Fprintf(&s.out, "  %s since t=%s: %s\n", name, c.Since.Sub(epoch), c.Message)
		}
	}
	if out.Soon {
		fmt.Fprintf(&s.out, "  layers are to be measured first\n")
	}
	if out.Reclaiming != "" {
		fmt.Fprintf(&s.out, "  reclaiming %s\n", out.Reclaiming)
	}
	if r := out.History.Reclaim; r != nil {
		fmt.Fprintf(&s.out, "  reclaim for %s: containers %t, images %t\n", r.For.Signal, r.Containers, r.Images)
	}
	for _, v := range out.Verdicts {
		fmt.Fprintf(&s.out, "  evict %s for %s, grace %d s: %q\n", v.Pod.Name, v.Signal, v.Grace, v.Message)
		for _, key := range slices.Sorted(maps.Keys(v.Annotations)) {
			fmt.Fprintf(&s.out, "    %s: %s\n", key, v.Annotations[key])
		}
	}
}

// TestRank: the rankings with one line of reason for each neighbour.
func TestRank(t *testing.T) {
	file, err := txtar.ParseFile("testdata/rank.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := &story{TB: t}
	want := map[string]string{}
	for _, f := range file.Files {
		switch f.Name {
		case "pods":
			s.pods(f.Data)
		case "use":
			for line := range strings.Lines(string(f.Data)) {
				if words := strings.Fields(line); len(words) > 0 {
					s.do(words)
				}
			}
		default:
			want[f.Name] = strings.Join(strings.Fields(string(f.Data)), " ")
		}
	}
	if len(want) < 10 {
		t.Fatalf("only %d rankings", len(want))
	}
	for name, order := range want {
		signal, layout, _ := strings.Cut(name, " ")
		for range 2 { // whatever the order they come in
			slices.Reverse(s.in.Pods)
			var got []string
			for _, p := range eviction.Rank(s.in.Pods, signal, eviction.Layout(layout)) {
				got = append(got, p.Name)
			}
			if strings.Join(got, " ") != order {
				t.Errorf("%s, %s: %v, want %s", signal, strconv.Quote(layout), got, order)
			}
		}
	}
}
