// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/standin"
)

// again starts the service anew, and waits until it has looked at the node.
func (s *strained) again() {
	s.Helper()
	before, _, _, _ := s.node.State()
	s.stop()
	s.start(s.edit)
	s.Eventually("the second life", func() bool {
		now, complete, _, _ := s.node.State()
		_, ok := s.node.Get("node")
		return now.Epoch != before.Epoch && complete && ok
	})
}

func (s *strained) pressed() (under bool, since time.Time) {
	n, _ := s.node.Get("node")
	return n.GetMemory().GetUnderPressure(), n.GetMemory().GetSince().AsTime()
}

// TestAConditionOutlivesARestart: a node that was short of memory has its condition for the
// transition period, and since the same time, whatever is killed meanwhile.
func TestAConditionOutlivesARestart(t *testing.T) {
	s := newStrained(t)
	s.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.EvictionPressureTransitionPeriod = metav1.Duration{Duration: time.Minute}
	})
	s.answers()
	s.memory("1024")
	s.after(10 * time.Second)
	s.Eventually("short of memory", func() bool { under, _ := s.pressed(); return under })
	_, since := s.pressed()
	s.memory("8388608")
	for range 3 {
		s.after(15 * time.Second)
		s.again()
		if under, now := s.pressed(); !under || !now.Equal(since) {
			t.Fatalf("after a restart: under pressure %t since %s, was since %s", under, now, since)
		}
	}
	s.after(30 * time.Second)
	s.Eventually("over", func() bool { under, _ := s.pressed(); return !under })
	s.again()
	if under, _ := s.pressed(); under {
		t.Error("it is back after a restart")
	}
}

// TestAConditionCountsBeforeTheFirstPass: that pass waits for the runtime, and pods are admitted
// meanwhile.
func TestAConditionCountsBeforeTheFirstPass(t *testing.T) {
	s := newStrained(t)
	s.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.EvictionPressureTransitionPeriod = metav1.Duration{Duration: time.Minute}
	})
	s.answers()
	s.memory("1024")
	s.after(10 * time.Second)
	s.Eventually("short of memory", func() bool { under, _ := s.pressed(); return under })
	p := burstable("b", "1")
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	const refused = "rejected Evicted: The node had condition: [MemoryPressure]. "
	if got := decision(s.admit(p, false)); got != refused {
		t.Fatal(got)
	}
	for _, tc := range []struct {
		down time.Duration
		want string
	}{{30 * time.Second, refused}, {time.Minute, "admitted "}} {
		s.stop()
		s.ahead.Add(int64(tc.down))
		s.stalled(func() {
			s.start(s.edit)
			got := ""
			s.Eventually("an answer", func() bool {
				got = s.asked(p)
				return got != "" && !strings.HasPrefix(got, "not yet")
			})
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("after %s: %s", tc.down, got)
			}
		})
	}
}

// stalled does something while the runtime does not say where its images are.
func (s *strained) stalled(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// asked is the decision about a pod; empty for none.
func (s *strained) asked(p *v1.Pod) string {
	data, err := p.Marshal()
	if err != nil {
		s.Fatal(err)
	}
	resp, err := s.client.Admit(s.Context(), &resourcev1.AdmitRequest{Pod: data})
	if err != nil {
		return ""
	}
	return decision(resp)
}

// TestTheGraceOfASoftThresholdGoesOn over restarts: the pod goes when the node has been
// short for the grace period in all.
func TestTheGraceOfASoftThresholdGoesOn(t *testing.T) {
	s := newStrained(t)
	s.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.EvictionHard = map[string]string{"memory.available": "1Ki"}
		c.Kubelet.EvictionSoft = map[string]string{"memory.available": "1Gi"}
		c.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": "1m"}
	})
	s.answers()
	s.Eventually("the node's item", func() bool { _, ok := s.node.Get("node"); return ok })
	s.admit(burstable("u", "100m"), false)
	s.uses("u", 1<<20)
	s.memory("1024")
	for range 3 {
		s.after(15 * time.Second)
		s.Eventually("short of memory", func() bool { under, _ := s.pressed(); return under })
		s.again()
		if s.verdict("u") != nil {
			t.Fatal("evicted before its grace was over")
		}
	}
	s.after(30 * time.Second)
	s.evicted("u")
}

// TestAClockThatIsSetBack does not hold a condition: what a life has kept of a time that is
// yet to come counts as of the next life's start.
func TestAClockThatIsSetBack(t *testing.T) {
	s := newStrained(t)
	s.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.EvictionPressureTransitionPeriod = metav1.Duration{Duration: time.Minute}
	})
	s.answers()
	s.memory("1024")
	s.after(10 * time.Second)
	s.Eventually("short of memory", func() bool { under, _ := s.pressed(); return under })
	s.memory("8388608")
	s.ahead.Add(-int64(24 * time.Hour))
	s.again()
	if under, since := s.pressed(); !under || time.Since(since) < 23*time.Hour {
		t.Errorf("at the start: under pressure %t since %s", under, since)
	}
	s.after(time.Minute)
	s.Eventually("over", func() bool { under, _ := s.pressed(); return !under })
}

// TestAVerdictOfAClockThatIsSetBack: the pod has its time again before the next goes.
func TestAVerdictOfAClockThatIsSetBack(t *testing.T) {
	s := newStrained(t)
	s.settle()
	for uid, used := range map[string]int64{"small": 1 << 20, "big": 2 << 20} {
		s.admit(burstable(uid, "100m"), false)
		s.uses(uid, used)
	}
	s.memory("1024")
	s.after(10 * time.Second)
	s.evicted("big")
	s.ahead.Add(-int64(24 * time.Hour))
	s.again()
	s.memory("512")
	s.after(35 * time.Second)
	s.Eventually("a pass", func() bool {
		n, _ := s.node.Get("node")
		return strings.Contains(n.GetMemory().GetMessage(), "memory.available: 524288 of")
	})
	now := standin.Read(s.House, house.ResourcePods)
	s.Eventually("what that pass has decided", now.Complete)
	if item, ok := now.Get("small"); !ok || item.GetEviction() != nil {
		t.Errorf("while another is on its way: %v", item)
	}
	s.after(10 * time.Second)
	s.evicted("small")
}
