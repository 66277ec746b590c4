// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
)

// In the tests of this file the clock stands still, so that no timer can stand in
// for a wake-up.

// TestPredecessorSeenGoneLater: the worker of a static pod learns from its own reading
// of the runtime that the pod is gone, and gives the name back, before the replica of
// all records shows it. The pod that takes its place starts when the replica does.
func TestPredecessorSeenGoneLater(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	n.desire(static("one"))
	n.until("up", func() bool { return n.settled("one") })
	release := n.wire.hold(house.PlegPods.Name)
	defer release()
	n.desire(static("two"))
	n.forget("one")
	n.pass("the first gone", time.Second, func() bool { return n.state("one") == nil && len(n.rt.Sandboxes()) == 0 })
	n.until("the second waits", func() bool { return n.state("two").GetWait().GetStep() == "predecessor" })
	n.rest()
	release()
	n.until("the second up", func() bool { return n.settled("two") })
}

// TestRecordsCompleteBesideOthers: that pleg has read all pods comes with the record
// of one pod, and another, of which it has nothing, starts.
func TestRecordsCompleteBesideOthers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	a, b := web("a"), web("b")
	n.desire(a)
	n.until("up", func() bool { return n.settled(a.UID) })
	n.die()
	n.desire(b)
	release := n.wire.hold(house.PlegPods.Name)
	defer release()
	n.live()
	n.until("waits for pleg", func() bool { return n.state(b.UID).GetWait().GetStep() == "observe" })
	n.rest()
	release()
	n.until("up", func() bool { return n.settled(b.UID) })
}

// TestRevisionOfAnotherPod: volume has nothing of a pod and says so as of a revision
// that another pod's change has made. The pod goes on once the replica has come there.
func TestRevisionOfAnotherPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("up", func() bool { return n.settled(p.UID) })
	n.die()
	n.must(os.RemoveAll(filepath.Join(n.dir, "state")))
	n.volumes.Delete(context.Background(), string(p.UID))
	n.apiAway()
	n.forget(p.UID)
	n.live()
	n.until("nobody's, and config is waited for", func() bool { return n.state(p.UID).GetWait().GetOwner() == "config" })
	n.until("volume read", func() bool { return n.loop.in.Volumes.Complete() })
	release := n.wire.hold(house.VolumePods.Name)
	defer release()
	n.set(n.volumes.Set(context.Background(), "other", &volumev1.PodVolumes{Uid: "other"}))
	n.apiBack()
	n.until("waits for volume", func() bool { return n.state(p.UID).GetWait().GetOwner() == "volume" })
	n.rest()
	release()
	n.until("gone", func() bool { return n.state(p.UID) == nil && len(n.rt.Sandboxes()) == 0 })
}

// TestSourceReadBeforeItsPods: config has read the API server's pods as of a revision
// that another pod's change has made. A pod of before starts once the replica has come
// there.
func TestSourceReadBeforeItsPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pods.SetComplete(context.Background(), false)
	n.set(n.sources.Set(context.Background(), pod.SourceAPI, &configv1.Source{Name: pod.SourceAPI}))
	p := web("a")
	n.desire(p)
	n.live()
	n.until("waits for config", func() bool { return n.state(p.UID).GetWait().GetStep() == "sources" })
	release := n.wire.hold(house.ConfigPods.Name)
	defer release()
	n.desire(web("b"))
	revision, _, _ := n.pods.State()
	n.set(n.sources.Set(context.Background(), pod.SourceAPI, &configv1.Source{Name: pod.SourceAPI, Complete: true, PodsRevision: revision.Proto()}))
	n.until("the source read", func() bool {
		s, _ := n.loop.in.Sources.Get(pod.SourceAPI)
		return s.GetComplete()
	})
	n.rest()
	release()
	n.until("up", func() bool { return n.settled(p.UID) })
}

// TestChangeDuringARound: what changes after a worker has looked, and before it has
// registered for it, wakes it all the same.
func TestChangeDuringARound(t *testing.T) {
	t.Parallel()
	facts := step.Facts{State: step.Syncing}
	for _, tt := range []struct {
		topic topic
		in    step.Input
		plan  step.Plan
	}{
		{nodeResources, step.Input{}, step.Plan{Facts: step.Facts{Memory: step.Memory{NotYet: &step.NotYet{}}}}},
		{apiObjects, step.Input{}, step.Plan{Facts: facts, Wait: &step.Wait{}}},
		{fullNames, step.Input{Holder: "other"}, step.Plan{Facts: facts}},
	} {
		n := newNode(t)
		n.live()
		w := &worker{mailbox: newMailbox(), l: n.loop.ledger, fresh: freshness{in: n.loop.in}}
		for _, changed := range []bool{true, false} {
			from := w.outset()
			if changed {
				n.loop.changed(tt.topic)
			}
			w.heed(from, &tt.in, &tt.plan)
			if w.poked() != changed {
				t.Errorf("topic %d changed: %t; woken: %t", tt.topic, changed, w.poked())
			}
			if changed {
				<-w.wake
			}
		}
		n.die()
	}
}

// TestLateSandboxOfAForgottenPod: the runtime makes a sandbox, of a call that was
// given up long ago, at the moment in which the pod is forgotten. It is removed.
func TestLateSandboxOfAForgottenPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("up", func() bool { return n.settled(p.UID) })
	config := n.rt.SandboxConfig(n.rt.Sandboxes()[0].GetId())
	late := false
	stop := n.wire.Listen(house.PodWorkerPods.Name, func(feed.Revision) {
		if late || n.state(p.UID) != nil {
			return
		}
		late = true // in the worker's own goroutine, while it forgets the pod
		if _, err := n.cri.RunPodSandbox(context.Background(), &runtimeapi.RunPodSandboxRequest{Config: config}); err != nil {
			t.Error(err)
		}
		n.until("the late sandbox seen", func() bool {
			_, seen := n.loop.in.Records.Get(string(p.UID))
			return seen
		})
	})
	defer stop()
	n.forget(p.UID)
	n.until("the late sandbox gone", func() bool {
		return n.rt.Count(fakecri.Match{Method: "RemovePodSandbox"}) == 2 && len(n.rt.Sandboxes()) == 0
	})
	n.until("forgotten", func() bool { return n.state(p.UID) == nil })
}

// TestLateRecordOfAForgottenPod: a record that was read while the sandbox was being removed
// comes when the pod is forgotten. The pod is no orphan; what the runtime really keeps of it
// is ended a little later.
func TestLateRecordOfAForgottenPod(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"gone": false, "kept": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.live()
			p := web("a")
			n.desire(p)
			n.until("up", func() bool { return n.settled(p.UID) })
			n.desire(n.deleted(p, 1))
			n.until("released", func() bool { return n.released(p.UID) })
			old, _ := n.records.Get(string(p.UID))
			old.Containers = nil
			n.away(&n.deaf, true)
			n.pleg.leave(true)
			late, come := false, make(chan struct{})
			stop := n.wire.Listen(house.PodWorkerPods.Name, func(feed.Revision) {
				if late || n.state(p.UID) != nil {
					return
				}
				late = true // in the worker's own goroutine, while it forgets the pod
				n.set(n.records.Set(context.Background(), string(p.UID), old))
				n.until("the late record", func() bool {
					_, seen := n.loop.in.Records.Get(string(p.UID))
					return seen
				})
				close(come)
			})
			defer stop()
			n.forget(p.UID)
			n.until("the late record has come", func() bool {
				select {
				case <-come:
					return true
				default:
					return false
				}
			})
			n.pleg.leave(false)
			orphans := map[string]float64{"kubelet_orphaned_runtime_pods_total": 0}
			if kept {
				orphans["kubelet_orphaned_runtime_pods_total"] = 1
				n.pass("ended as an orphan", leftoverPeriod, func() bool {
					return measure.Value(t, n.metrics, "kubelet_orphaned_runtime_pods_total") > 0
				})
			}
			other := web("b")
			n.desire(other)
			n.until("another is up", func() bool { return n.settled(other.UID) })
			measure.Expect(t, n.metrics, orphans)
		})
	}
}

// TestPlegAwayAfterARemoval: nothing waits for the record that follows a removal.
// While pleg is away it is asked once a second, and no worker turns in circles.
func TestPlegAwayAfterARemoval(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	stall := n.rt.Stall(fakecri.Match{Method: "RemoveContainer"})
	n.live()
	p := web("a", command("exit 1"))
	n.desire(p)
	n.pass("a removal of an old instance", time.Second, func() bool { return stall.Caught() == 1 })
	n.until("back-off", func() bool { return n.waiting(p.UID, "CrashLoopBackOff") })
	n.pleg.leave(true)
	stall.Release()
	n.until("removed", func() bool { return n.rt.Count(fakecri.Match{Method: "RemoveContainer"}) == 1 })
	asked := n.pleg.refused()
	n.pass("asked again", 100*time.Millisecond, func() bool { return n.pleg.refused() >= asked+3 })
	steps := func() float64 { return measure.Value(t, n.metrics, "sextant_podworker_steps_total") }
	before, at := steps(), n.clock.Now()
	n.pass("three seconds", 100*time.Millisecond, func() bool { return n.clock.Since(at) >= 3*time.Second })
	if taken := steps() - before; taken > 20 {
		t.Errorf("%v rounds in three seconds of waiting", taken)
	}
	n.pleg.leave(false)
	n.pass("read", 100*time.Millisecond, func() bool { return n.pleg.refused() > 0 && n.recordIsCurrent(p) })
}

// recordIsCurrent reports whether the newest record shows what the runtime has.
func (n *node) recordIsCurrent(p *v1.Pod) bool {
	record, ok := n.loop.in.Records.Get(string(p.UID))
	return ok && len(record.Containers) == len(n.rt.Containers())
}

// TestRoundsOfEndings: the pods of a node end in as many rounds each, however many
// there are, also after a restart.
func TestRoundsOfEndings(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	const count = 80
	var pods []*v1.Pod
	all := func(is func(p *v1.Pod) bool) func() bool {
		return func() bool {
			for _, p := range pods {
				if !is(p) {
					return false
				}
			}
			return true
		}
	}
	for i := range count {
		pods = append(pods, web(fmt.Sprintf("p%d", i)))
		n.desire(pods[i])
	}
	n.until("all up", all(func(p *v1.Pod) bool { return n.settled(p.UID) }))
	n.die()
	n.live()
	n.until("taken up", func() bool { _, complete, _ := n.states.State(); return complete })
	n.until("all up", all(func(p *v1.Pod) bool { return n.settled(p.UID) }))
	before := measure.Value(t, n.metrics, "sextant_podworker_steps_total")
	for _, p := range pods {
		n.forget(p.UID)
	}
	n.until("all gone", all(func(p *v1.Pod) bool { return n.state(p.UID) == nil }))
	if each := (measure.Value(t, n.metrics, "sextant_podworker_steps_total") - before) / count; each > 25 {
		t.Errorf("%.1f rounds for each of %d pods", each, count)
	}
}

// TestConfigErrorIsNoReasonToTryAllTheTime: a container that misses a ConfigMap is not
// tried each time an object of others changes, and not all the time when its own does.
func TestConfigErrorIsNoReasonToTryAllTheTime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a", func(p *v1.Pod) {
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cfg"}}}}
	})
	change := func(name string, i int) {
		n.set(n.objects.Set(context.Background(), "ConfigMap/default/"+name, &configv1.Object{
			Kind: "ConfigMap", Namespace: "default", Name: name, Absent: true, Error: fmt.Sprint(i),
		}))
	}
	change("cfg", 0)
	n.desire(p)
	n.until("config error", func() bool { return n.waiting(p.UID, "CreateContainerConfigError") })
	tries := func() float64 {
		return measure.Value(t, n.metrics, `sextant_podworker_action_failures_total{kind="start"}`)
	}
	for _, name := range []string{"other", "cfg"} {
		before := tries()
		for i := range 60 {
			n.clock.Step(time.Second)
			change(name, i+1)
			n.rest()
		}
		if tried := tries() - before; tried < 1 || tried > 15 {
			t.Errorf("%v tries in a minute in which %s changes all the time", tried, name)
		}
	}
}
