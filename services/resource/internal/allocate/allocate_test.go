// SPDX-License-Identifier: Apache-2.0

package allocate_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
)

// adds chooses for a container of its name; refuses answers with a decision.
type (
	adds    string
	refuses resourcev1.Decision
)

func (a adds) Choose(r allocate.Request) allocate.Answer {
	r.Chosen.Containers = append(r.Chosen.Containers, &resourcev1.ContainerAllocation{Name: string(a)})
	return allocate.Answer{Decision: resourcev1.Decision_DECISION_ADMITTED, Chosen: r.Chosen}
}

func (d refuses) Choose(r allocate.Request) allocate.Answer {
	return allocate.Answer{Decision: resourcev1.Decision(d), Reason: "Because", Message: fmt.Sprint(len(r.Chosen.GetContainers()))}
}

func TestChoose(t *testing.T) {
	rejects := refuses(resourcev1.Decision_DECISION_REJECTED)
	waits := refuses(resourcev1.Decision_DECISION_NOT_YET)
	for _, c := range []struct {
		what       string
		allocators []allocate.Allocator
		running    bool
		want       string
	}{
		{"none", nil, false, "DECISION_ADMITTED [] : "},
		{"each adds to what was chosen", []allocate.Allocator{adds("a"), adds("b")}, false, "DECISION_ADMITTED [a b] : "},
		{"the first that refuses ends it", []allocate.Allocator{adds("a"), rejects, waits}, false, "DECISION_REJECTED [] Because: 1"},
		{"not yet", []allocate.Allocator{waits, rejects}, false, "DECISION_NOT_YET [] Because: 0"},
		{"a running pod is not refused", []allocate.Allocator{adds("a"), rejects, adds("b"), waits}, true, "DECISION_ADMITTED [a b] Because: 1"},
	} {
		answer := allocate.Choose(c.allocators, allocate.Request{Pod: &v1.Pod{}, Running: c.running})
		names := []string{}
		for _, container := range answer.Chosen.GetContainers() {
			names = append(names, container.GetName())
		}
		if got := fmt.Sprintf("%v %v %s: %s", answer.Decision, names, answer.Reason, answer.Message); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
