// SPDX-License-Identifier: Apache-2.0

package memorymanager_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
	"github.com/sextant-node/sextant/test/stories"
)

// TestStories replays testdata/*.txtar: "story" has lines, "want" what they answer.
//
//	machine SIZE[+PAGES]...      a NUMA node each: its memory, with so many pages of 2 MiB
//	policy SUM NODE=SIZE...      reserved on the nodes; SUM is reserved in all
//	                             the gate PodLevelResourceManagers is on
//	topology NAME [SCOPE]        the topology manager's policy
//	pod NAME [whole:MEMORY[+HUGEPAGES]] CONTAINER...   what is whole is the pod's own; a container is NAME=MEMORY[+HUGEPAGES], init:... or sidecar:...;
//	                             with a ? after its memory it has no limits
//	gone NAME                    the pod is not there any more
func TestStories(t *testing.T) {
	stories.Replay(t, 6, func(t *testing.T, a *txtar.Archive) string {
		return (&story{TB: t, topology: &topology.Policy{}}).tell(string(stories.Part(a, "story")))
	})
}

type story struct {
	testing.TB
	machine  *layout.Layout
	topology *topology.Policy
	policy   *memorymanager.Policy
	assigned []memorymanager.Assignment
}

func (s *story) tell(text string) string {
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
			for _, m := range s.machine.Memory {
				nodes = append(nodes, topology.Node{ID: m.Node})
			}
			var err error
			settings := topology.Settings{Policy: words[1], PodLevel: true}
			if len(words) > 2 {
				settings.Scope = words[2]
			}
			if s.topology, err = topology.New(settings, nodes); err != nil {
				s.Fatal(err)
			}
		case "policy":
			if err := s.set(words[1], words[2:]); err != nil {
				fmt.Fprintf(&out, "  error: %v\n", err)
			}
		case "pod":
			s.admit(&out, words[1], words[2:])
		case "gone":
			s.assigned = slices.DeleteFunc(s.assigned, func(a memorymanager.Assignment) bool { return a.UID == words[1] })
		default:
			s.Fatalf("no such command: %s", line)
		}
		if s.policy != nil && words[0] != "topology" {
			s.left(&out)
		}
	}
	return out.String()
}

// left writes what the nodes have left, and the groups that they serve.
func (s *story) left(out *strings.Builder) {
	machine := s.policy.Machine(s.assigned)
	for _, m := range s.machine.Memory {
		n := machine[m.Node]
		fmt.Fprintf(out, "  node %d: %d blocks of %v, free %s", m.Node, n.NumberOfAssignments, n.Cells, text(n.MemoryMap[v1.ResourceMemory].Free))
		if pages := n.MemoryMap["hugepages-2Mi"]; pages != nil {
			fmt.Fprintf(out, ", hugepages-2Mi %s", text(pages.Free))
		}
		fmt.Fprintln(out)
	}
}

func text(n uint64) string { return resource.NewQuantity(int64(n), resource.BinarySI).String() }

func (s *story) build(words []string) *layout.Layout {
	var memory []layout.Memory
	for id, w := range words {
		size, pages, _ := strings.Cut(w, "+")
		q := resource.MustParse(size)
		m := layout.Memory{Node: id, Bytes: uint64(q.Value()), HugePages: map[uint64]uint64{}}
		if n, err := strconv.ParseUint(pages, 10, 64); err == nil {
			m.HugePages[2048] = n
		}
		memory = append(memory, m)
	}
	l, err := layout.New([]layout.CPU{{}}, memory)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *story) set(whole string, words []string) error {
	var reserved []kubeletv1beta1.MemoryReservation
	for _, w := range words {
		node, size, _ := strings.Cut(w, "=")
		id, err := strconv.Atoi(node)
		if err != nil {
			s.Fatal(err)
		}
		reserved = append(reserved, kubeletv1beta1.MemoryReservation{
			NumaNode: int32(id), Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)},
		})
	}
	policy, err := memorymanager.New(s.machine, reserved, v1.ResourceList{v1.ResourceMemory: resource.MustParse(whole)}, true)
	s.policy = policy
	return err
}

func (s *story) admit(out *strings.Builder, name string, words []string) {
	p := &v1.Pod{}
	p.UID, p.Name = types.UID(name), name
	always := v1.ContainerRestartPolicyAlways
	for _, w := range words {
		if size, ok := strings.CutPrefix(w, "whole:"); ok {
			list := listOf(size)
			p.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
			continue
		}
		label, size, _ := strings.Cut(w, "=")
		kind, short, early := strings.Cut(label, ":")
		size, burstable := strings.CutSuffix(size, "?")
		list := listOf(size)
		c := v1.Container{Name: label, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
		if burstable {
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
	has := func(container, label string, blocks []state.Block, part bool) {
		for _, b := range blocks {
			fmt.Fprintf(out, "  %s: %s %s on %v\n", label, b.Type, text(b.Size), b.NUMAAffinity)
		}
		if blocks != nil {
			s.assigned = append(s.assigned, memorymanager.Assignment{UID: name, Container: container, Blocks: blocks, Part: part})
		}
	}
	has("", "whole", admission.Pod, false)
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		has(c.Name, c.Name, admission.Blocks[c.Name], admission.Pod != nil)
	}
}

func listOf(size string) v1.ResourceList {
	memory, pages, _ := strings.Cut(size, "+")
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse(memory)}
	if pages != "" {
		list["hugepages-2Mi"] = resource.MustParse(pages)
	}
	return list
}
