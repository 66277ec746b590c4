// SPDX-License-Identifier: Apache-2.0

package cpumanager_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
	"github.com/sextant-node/sextant/test/stories"
)

// TestStories replays testdata/*.txtar: "story" has lines, "want" what they answer.
//
//	machine SOCKETS NODES CACHES CORES THREADS   so many of each in all; threads per core. The
//	                       second thread of core 0 comes after the first of the last core
//	policy COUNT|=CPUS [OPTION=VALUE...]         so many CPUs reserved, or these; an option
//	                       "pod-level" is the gate PodLevelResourceManagers
//	topology NAME [SCOPE]  the topology manager's policy; after "policy"
//	pod NAME [whole:CPUS] CONTAINER...  a container is NAME=CPUS, init:NAME=CPUS or
//	                       sidecar:NAME=CPUS; one with a ? after its CPUs has no limits. What is
//	                       whole is the pod's own
//	gone NAME              the pod is not there any more
func TestStories(t *testing.T) {
	stories.Replay(t, 8, func(t *testing.T, a *txtar.Archive) string {
		return (&story{TB: t}).tell(string(stories.Part(a, "story")))
	})
}

type story struct {
	testing.TB
	machine  *layout.Layout
	topology *topology.Policy
	policy   *cpumanager.Policy
	assigned cpumanager.Assignments
	podLevel topology.PodLevel
}

func (s *story) tell(text string) string {
	s.topology, s.assigned = &topology.Policy{}, cpumanager.Assignments{}
	var out strings.Builder
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		fmt.Fprintln(&out, strings.Join(words, " "))
		switch words[0] {
		case "machine":
			s.machine = s.build(words[1:])
		case "topology":
			var nodes []topology.Node
			for _, id := range s.machine.Units(layout.Node) {
				nodes = append(nodes, topology.Node{ID: id})
			}
			var err error
			settings := topology.Settings{Policy: words[1], PodLevel: s.podLevel}
			if len(words) > 2 {
				settings.Scope = words[2]
			}
			if s.topology, err = topology.New(settings, nodes); err != nil {
				s.Fatal(err)
			}
		case "policy":
			if err := s.set(words[1], words[2:]); err != nil {
				fmt.Fprintf(&out, "  error: %v\n", err)
				continue
			}
			fmt.Fprintf(&out, "  reserved %s shared %s\n", s.policy.Reserved(), s.policy.Shared(s.assigned))
		case "pod":
			s.admit(&out, words[1], words[2:])
		case "gone":
			delete(s.assigned, words[1])
			fmt.Fprintf(&out, "  shared %s\n", s.policy.Shared(s.assigned))
		default:
			s.Fatalf("no such command: %s", line)
		}
	}
	return out.String()
}

func (s *story) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *story) build(words []string) *layout.Layout {
	var n [5]int
	for i := range n {
		n[i] = s.number(words[i])
	}
	sockets, nodes, caches, cores, threads := n[0], n[1], n[2], n[3], n[4]
	var cpus []layout.CPU
	for id := range cores * threads {
		core := id % cores
		cpus = append(cpus, layout.CPU{
			ID: id, Core: core, Cache: core * caches / cores, Socket: core * sockets / cores, Node: core * nodes / cores,
		})
	}
	l, err := layout.New(cpus, nil)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *story) set(reservation string, words []string) error {
	given := map[string]string{}
	s.podLevel = topology.PodLevel(slices.Contains(words, "pod-level"))
	for _, w := range slices.DeleteFunc(words, func(w string) bool { return w == "pod-level" }) {
		name, value, _ := strings.Cut(w, "=")
		given[name] = value
	}
	options, err := cpumanager.ParseOptions(given, cpumanager.Gates{Alpha: true, Beta: true})
	if err != nil {
		return err
	}
	options.PodLevel = s.podLevel
	var reserved cpuset.CPUSet
	var count int
	if list, ok := strings.CutPrefix(reservation, "="); ok {
		if reserved, err = cpuset.Parse(list); err != nil {
			s.Fatal(err)
		}
		count = reserved.Size()
	} else {
		count = s.number(reservation)
	}
	policy, err := cpumanager.New(s.machine, options, count, reserved, s.topology)
	if err == nil {
		s.policy = policy
	}
	return err
}

func (s *story) admit(out *strings.Builder, name string, words []string) {
	p := &v1.Pod{}
	p.UID, p.Name = types.UID(name), name
	always := v1.ContainerRestartPolicyAlways
	for _, w := range words {
		if cpus, ok := strings.CutPrefix(w, "whole:"); ok {
			list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("9Mi")}
			p.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
			continue
		}
		label, cpus, _ := strings.Cut(w, "=")
		kind, short, early := strings.Cut(label, ":")
		cpus, unlimited := strings.CutSuffix(cpus, "?")
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("1Mi")}
		c := v1.Container{Name: label, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
		if unlimited {
			c.Resources.Limits = nil
		}
		if !early {
			p.Spec.Containers = append(p.Spec.Containers, c)
			continue
		}
		if c.Name = short; kind == "sidecar" {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	admission := s.policy.Admission(s.assigned)
	if o := s.topology.Admit(p, []topology.Provider{admission}); o.Refusal != nil {
		fmt.Fprintf(out, "  %s: %s\n", o.Refusal.Reason, o.Refusal.Message)
		return
	}
	s.assigned[name] = admission.Given
	if !admission.Given.Pod.IsEmpty() {
		fmt.Fprintf(out, "  whole %s\n", admission.Given.Pod)
	}
	for _, c := range slices.Sorted(maps.Keys(admission.Given.Containers)) {
		fmt.Fprintf(out, "  %s %s\n", c, admission.Given.Containers[c])
	}
	fmt.Fprintf(out, "  shared %s\n", s.policy.Shared(s.assigned))
}
