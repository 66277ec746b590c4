// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/fakecri"
)

// stages are where a pod may be when the runtime carries out what was given up; each
// brings the pod there, from the moment the call is under way.
var stages = []struct {
	name  string
	reach func(n *node, p *v1.Pod)
	// killed: podworker remembers nothing of the call.
	killed bool
	// refused: it holds nothing. forgets: podworker has no worker for it.
	refused, forgets bool
}{
	{"terminated", func(n *node, p *v1.Pod) {
		n.away(&n.busy, true)
		n.desire(n.deleted(p, 30))
		n.until("terminated", func() bool { return n.lifecycle(p.UID, podworkerv1.Lifecycle_LIFECYCLE_TERMINATED) })
	}, false, false, false},
	{"released", func(n *node, p *v1.Pod) {
		n.desire(n.deleted(p, 30))
		n.until("released", func() bool { return n.released(p.UID) })
	}, false, false, false},
	{"forgotten", func(n *node, p *v1.Pod) {
		n.desire(n.deleted(p, 30))
		n.until("released", func() bool { return n.released(p.UID) })
		n.forget(p.UID)
		n.until("forgotten", func() bool { return n.state(p.UID) == nil })
	}, false, false, true},
	{"terminated and killed", func(n *node, p *v1.Pod) {
		n.away(&n.busy, true)
		n.desire(n.deleted(p, 30))
		n.until("terminated", func() bool { return n.lifecycle(p.UID, podworkerv1.Lifecycle_LIFECYCLE_TERMINATED) })
		n.die()
		n.live()
		n.until("terminated again", func() bool { return n.lifecycle(p.UID, podworkerv1.Lifecycle_LIFECYCLE_TERMINATED) })
	}, true, false, false},
	{"killed, deleted meanwhile", func(n *node, p *v1.Pod) {
		n.die()
		n.desire(n.deleted(p, 30))
		n.live()
		n.until("released", func() bool { return n.released(p.UID) })
	}, true, false, false},
	{"killed, and gone from config meanwhile", func(n *node, p *v1.Pod) {
		n.die()
		n.forget(p.UID)
		n.live()
		n.until("forgotten", func() bool { _, complete, _ := n.states.State(); return complete && n.state(p.UID) == nil })
	}, true, false, true},
	{"killed, without its journal, and refused", func(n *node, p *v1.Pod) {
		n.die()
		n.must(os.RemoveAll(filepath.Join(n.dir, "state")))
		n.allocations.Delete(context.Background(), string(p.UID)) // resource has lost its own, too
		n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
			return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: "OutOfcpu"}
		}
		n.live()
		n.until("refused", func() bool { return n.lifecycle(p.UID, podworkerv1.Lifecycle_LIFECYCLE_REJECTED) })
	}, true, true, false},
}

// alive counts what the runtime has that runs.
func (n *node) alive() (alive int) {
	for _, s := range n.rt.Sandboxes() {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			alive++
		}
	}
	for _, c := range n.rt.Containers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			alive++
		}
	}
	return alive
}

// TestWhatComesLateIsEnded: a call that creates something is given up, and the
// runtime carries it out all the same, wherever the pod is by then. What came is
// ended, its cgroup and its volumes are given back, and nothing is left.
func TestWhatComesLateIsEnded(t *testing.T) {
	for _, method := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		for _, stage := range stages {
			for _, events := range []bool{true, false} {
				name := method + "/" + stage.name
				if !events {
					name += ", no event"
				}
				if !events && stage.killed {
					continue // then pleg's own relist finds it
				}
				if method == "StartContainer" && stage.forgets {
					continue // what is being started cannot be removed: the pod stays until then
				}
				t.Run(name, func(t *testing.T) {
					n := newNode(t)
					late := n.rt.Linger(fakecri.Match{Method: method})
					defer late.Release()
					n.live()
					p := web("a")
					n.desire(p)
					n.until("the call", func() bool { return late.Caught() == 1 })
					stage.reach(n, p)
					n.away(&n.deaf, !events)
					n.mu.Lock()
					asked := len(n.releasing)
					n.mu.Unlock()
					late.Release()
					n.until("it is carried out", func() bool { return n.rt.Count(fakecri.Match{Method: method}) > 0 })
					if method != "CreateContainer" {
						n.pass("it is ended, and given back", time.Second, func() bool {
							n.mu.Lock()
							defer n.mu.Unlock()
							return n.alive() == 0 && (len(n.releasing) > asked || stage.refused)
						})
					}
					n.away(&n.busy, false)
					if item, ok := n.allocations.Get(string(p.UID)); ok && item.GetReleasing() { // resource tries by itself
						n.allocations.Delete(context.Background(), string(p.UID))
					}
					n.pass("it is released", time.Second, func() bool { return len(n.allocations.Keys()) == 0 })
					n.forget(p.UID)
					n.pass("nothing is left", time.Second, func() bool {
						return n.state(p.UID) == nil && len(n.rt.Sandboxes())+len(n.rt.Containers()) == 0 && len(n.volumes.Keys()) == 0
					})
				})
			}
		}
	}
}

// TestCancelledStartsAreNoFailures: a pod is deleted in the middle of each call of its
// start. It goes, and nothing says that anything failed.
func TestCancelledStartsAreNoFailures(t *testing.T) {
	for _, method := range startCalls {
		t.Run(method, func(t *testing.T) {
			n := newNode(t, fakecri.Image{Ref: subjectImage})
			stall := n.rt.Stall(about(method))
			defer stall.Release()
			n.live()
			policy := v1.PullIfNotPresent
			if method == "PullImage" {
				policy = v1.PullAlways
			}
			p := subject(policy)
			n.desire(p)
			n.until("the call", func() bool { return stall.Caught() == 1 })
			n.desire(n.deleted(p, 30))
			if method == "ExecSync" { // of the postStart hook; the next is the preStop hook's
				n.until("the hook given up", func() bool { return n.rt.Count(about(method)) == 1 })
				stall.Release()
			}
			n.pass("released", time.Second, func() bool { return n.released(p.UID) })
			n.saysNothingFailed()
		})
	}
}

// saysNothingFailed: no event and no metric tells of a failure.
func (n *node) saysNothingFailed() {
	n.t.Helper()
	for _, e := range n.told() {
		if strings.HasPrefix(e, "Failed") || strings.HasPrefix(e, "InspectFailed") || strings.Contains(e, "cancel") {
			n.t.Errorf("event %s", e)
		}
	}
	families, err := n.metrics.Gather()
	n.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if strings.Contains(f.GetName(), "error") || strings.Contains(f.GetName(), "failure") {
				if v := m.GetCounter().GetValue(); v > 0 {
					n.t.Errorf("%s %v is %v", f.GetName(), m.GetLabel(), v)
				}
			}
		}
	}
}

// TestRestartOfAllWhileOneStarts: a container, or a sidecar, ends with a code for which
// all are started again (KEP-5532), in the middle of each call of another one's start.
func TestRestartOfAllWhileOneStarts(t *testing.T) {
	never, always := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
	for _, source := range []string{"regular", "sidecar"} {
		for _, method := range []string{"ImageStatus", "PullImage", "CreateContainer", "StartContainer", "ExecSync"} {
			t.Run(source+"/"+method, func(t *testing.T) {
				n := newNode(t)
				p := web("a", func(p *v1.Pod) {
					p.Spec.RestartPolicy = v1.RestartPolicyNever
					first := &p.Spec.Containers[0]
					first.Name, first.RestartPolicy = "first", &never
					first.RestartPolicyRules = []v1.ContainerRestartRule{{
						Action:    v1.ContainerRestartRuleActionRestartAllContainers,
						ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
					}}
					second := *first.DeepCopy()
					second.Name, second.Image, second.RestartPolicy, second.RestartPolicyRules = "second", "fake/second", nil, nil
					second.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
					if method == "PullImage" {
						second.ImagePullPolicy = v1.PullAlways
					}
					p.Spec.Containers = append(p.Spec.Containers, second)
					if source == "sidecar" {
						sidecar := *first.DeepCopy()
						sidecar.RestartPolicy = &always
						p.Spec.InitContainers, p.Spec.Containers = []v1.Container{sidecar}, p.Spec.Containers[1:]
					}
				})
				match := fakecri.Match{Method: method, Name: "second"}
				if method == "ImageStatus" || method == "PullImage" {
					match.Name = "fake/second:latest"
				}
				up := func(name string, instance uint32) bool {
					c := n.rt.Container("a", name)
					return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetMetadata().GetAttempt() >= instance
				}
				stall := n.rt.Stall(match)
				defer stall.Release()
				n.live()
				n.desire(p)
				n.pass("the first, and the call", 500*time.Millisecond, func() bool { return up("first", 0) && stall.Caught() == 1 })
				n.rt.Exit(n.rt.Container("a", "first").GetId(), 42)
				n.until("the call given up", func() bool { return n.rt.Count(match) > 0 })
				stall.Release()
				n.pass("all of them again", time.Second, func() bool { return up("first", 1) && up("second", 0) && n.settled(p.UID) })
				n.saysNothingFailed()
			})
		}
	}
}

// TestWhatUnknownPodsHoldIsGivenBack: an Admit and a Declare that were given up were
// carried out after the pod had been released, and forgotten.
func TestWhatUnknownPodsHoldIsGivenBack(t *testing.T) {
	n := newNode(t)
	n.live()
	n.until("complete", func() bool { _, complete, _ := n.states.State(); return complete })
	ctx := context.Background()
	n.set(n.volumes.Set(ctx, "ghost", &volumev1.PodVolumes{Uid: "ghost", Ready: true}))
	n.set(n.allocations.Set(ctx, "other", &resourcev1.PodAllocation{Uid: "other", Namespace: "default", Name: "other"}))
	n.pass("given back, and forgotten", time.Second, func() bool {
		return len(n.volumes.Keys())+len(n.allocations.Keys())+len(n.states.Keys()) == 0
	})
}
