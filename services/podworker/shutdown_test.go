// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/shutdown"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/fakelogind"
)

var stopContainer = fakecri.Match{Method: "StopContainer"}

const (
	stageStaying   = podworkerv1.ShutdownStage_SHUTDOWN_STAGE_STAYING
	stageEnding    = podworkerv1.ShutdownStage_SHUTDOWN_STAGE_ENDING
	stageReporting = podworkerv1.ShutdownStage_SHUTDOWN_STAGE_REPORTING
	stageEnded     = podworkerv1.ShutdownStage_SHUTDOWN_STAGE_ENDED
)

// goingDown is a node on a machine that can be shut down: 20 s for pods, the last
// five of them for critical ones.
func goingDown(t *testing.T) (*node, *fakelogind.Machine) {
	t.Helper()
	m := fakelogind.Start(t, true)
	n := newNode(t)
	n.boot, n.logind = "first", dialLogind(m.Address())
	n.reconfigure(func(c *kubeletconfig.Config) {
		c.Node.KubeConfig = "/kubeconfig"
		c.Kubelet.ShutdownGracePeriod.Duration = 20 * time.Second
		c.Kubelet.ShutdownGracePeriodCriticalPods.Duration = 5 * time.Second
	})
	n.live()
	n.await(m, "the machine to be held", func() bool { return len(m.Held()) == 1 })
	if m.Delay() != 25*time.Second {
		t.Errorf("logind grants %s", m.Delay())
	}
	return n, m
}

// reconfigure changes the configuration.
func (n *node) reconfigure(change func(*kubeletconfig.Config)) {
	n.t.Helper()
	item, _ := n.kubelet.Get("kubelet")
	c, err := kubeletconfig.Unmarshal(item.GetConfig())
	n.must(err)
	change(c)
	raw, err := c.Marshal()
	n.must(err)
	n.set(n.kubelet.Set(context.Background(), "kubelet", &configv1.KubeletConfig{Generation: item.GetGeneration() + 1, Config: raw}))
}

// await waits for something at the machine.
func (n *node) await(m *fakelogind.Machine, what string, check func() bool) {
	n.t.Helper()
	limit := time.After(time.Minute)
	for {
		changed := m.Changed()
		if check() {
			return
		}
		select {
		case <-changed:
		case <-limit:
			n.t.Fatalf("waited for %s; held by %v\n%s", what, m.Held(), n.dump())
		}
	}
}

func (n *node) stage() podworkerv1.ShutdownStage {
	item, _ := n.nodeState.Get(nodeKey)
	return item.GetStage()
}

// report is the last status of a pod, arrived at the API server.
func (n *node) report(uid types.UID) {
	n.t.Helper()
	data, err := (&v1.PodStatus{Phase: v1.PodFailed}).Marshal()
	n.must(err)
	n.set(n.reports.Set(context.Background(), string(uid), &statusv1.PodReport{Uid: string(uid), Status: data, Reported: true}))
}

func critical(p *v1.Pod) {
	priority := int32(2_000_000_000)
	p.Spec.Priority = &priority
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	n, m := goingDown(t)
	web1, dns := web("web1"), web("dns", critical)
	n.desire(web1)
	n.desire(dns)
	n.until("both run", func() bool { return n.settled(web1.UID) && n.settled(dns.UID) })

	m.Shutdown(true)
	n.until("the first has ended", func() bool { return n.lifecycle(web1.UID, released) })
	n.until("the second has ended", func() bool { return n.lifecycle(dns.UID, released) })
	ended := func(name string) time.Time { return time.Unix(0, n.rt.Container(name, "web").GetFinishedAt()) }
	if ended("dns").Before(ended("web1")) {
		t.Error("the critical pod ended first")
	}
	for _, uid := range []types.UID{web1.UID, dns.UID} {
		s := n.state(uid)
		if s.GetReason() != "Terminated" || s.GetMessage() != "Pod was terminated in response to imminent node shutdown." || s.GetVerdict().GetKind() != "Shutdown" || !s.GetVerdict().GetDisruption() {
			t.Errorf("%s: %v %q %v", s.GetName(), s.GetReason(), s.GetMessage(), s.GetVerdict())
		}
	}
	if !n.heard("Shutdown") {
		t.Errorf("events %v", n.told())
	}
	// The machine is held until both ends are known.
	n.until("statuses are awaited", func() bool { return n.stage() == stageReporting })
	n.report(web1.UID)
	if len(m.Held()) != 1 {
		t.Fatal("let go before the last status had arrived")
	}
	n.report(dns.UID)
	n.await(m, "the machine to be let go", func() bool { return len(m.Held()) == 0 })
	n.until("the end is told", func() bool { return n.stage() == stageEnded })

	// Nothing is taken up any more.
	late := web("late")
	n.desire(late)
	n.until("refused", func() bool { return n.lifecycle(late.UID, podworkerv1.Lifecycle_LIFECYCLE_REJECTED) })
	if s := n.state(late.UID); s.GetReason() != "NodeShutdown" || s.GetMessage() != "Pod was rejected as the node is shutting down." {
		t.Errorf("%s %q", s.GetReason(), s.GetMessage())
	}

	// Called off: the machine is held again, and pods are taken up.
	m.Shutdown(false)
	n.await(m, "the machine to be held again", func() bool { return len(m.Held()) == 1 })
	n.until("the node stays", func() bool { return n.stage() == stageStaying })
	again := web("again")
	n.desire(again)
	n.until("taken up", func() bool { return n.settled(again.UID) })
}

// TestShutdownWithoutTheAPIServer: podworker was started while the API server is away. Critical
// pods have their turn all the same once the others have ended, and then the machine is let go.
func TestShutdownWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	n, m := goingDown(t)
	first, second := web("first"), web("second", critical)
	n.desire(first)
	n.desire(second)
	n.until("both run", func() bool { return n.settled(first.UID) && n.settled(second.UID) })
	n.die()
	n.apiAway()
	n.live()
	n.until("both run again", func() bool { return n.settled(first.UID) && n.settled(second.UID) })
	n.await(m, "the machine to be held", func() bool { return len(m.Held()) == 1 })
	m.Shutdown(true)
	n.until("both have ended", func() bool { return n.lifecycle(first.UID, released) && n.lifecycle(second.UID, released) })
	n.until("statuses are awaited", func() bool { return n.stage() == stageReporting })
	n.pass("the machine is let go", time.Second, func() bool { return n.stage() == stageEnded })
}

// TestShutdownSurvivesKill: podworker is killed while pods end.
func TestShutdownSurvivesKill(t *testing.T) {
	t.Parallel()
	n, m := goingDown(t)
	stop := n.rt.Stall(stopContainer)
	defer stop.Release()
	first, second := web("first"), web("second", critical)
	n.desire(first)
	n.desire(second)
	n.until("both run", func() bool { return n.settled(first.UID) && n.settled(second.UID) })
	m.Shutdown(true)
	n.until("the first is being stopped", func() bool { return stop.Caught() == 1 })
	began, _ := n.nodeState.Get(nodeKey)

	n.die()
	if len(m.Held()) != 1 {
		t.Fatal("the machine was let go by a kill")
	}
	n.live()
	n.until("the shutdown goes on", func() bool { return n.stage() == stageEnding && stop.Caught() == 2 })
	if now, _ := n.nodeState.Get(nodeKey); !now.GetSince().AsTime().Equal(began.GetSince().AsTime()) {
		t.Errorf("began at %s, then at %s", began.GetSince().AsTime(), now.GetSince().AsTime())
	}
	stop.Release()
	n.until("both have ended", func() bool { return n.lifecycle(first.UID, released) && n.lifecycle(second.UID, released) })
	n.report(first.UID)
	n.report(second.UID)
	n.await(m, "the machine to be let go", func() bool { return len(m.Held()) == 0 })
	if got := strings.Count(strings.Join(n.told(), "\n"), "detected shutdown event"); got != 1 {
		t.Errorf("told %d times", got)
	}
}

// TestShutdownKilledBeforeItIsKept kills podworker before the stage of a shutdown is on
// the disk: the next life finds the machine going down, and ends its pods.
func TestShutdownKilledBeforeItIsKept(t *testing.T) {
	n, m := goingDown(t)
	p := web("a")
	n.desire(p)
	n.until("it runs", func() bool { return n.settled(p.UID) })
	n.must(fault.Set("podworker.shutdown=pause"))
	t.Cleanup(func() { n.must(fault.Set("")) })
	m.Shutdown(true)
	n.until("the point", func() bool { return fault.Caught("podworker.shutdown") > 0 })
	n.die()
	n.must(fault.Set(""))
	if len(m.Held()) != 1 {
		t.Fatal("the machine was let go by a kill")
	}
	n.live()
	n.until("it has ended", func() bool { return n.lifecycle(p.UID, released) })
	n.report(p.UID)
	n.await(m, "the machine to be let go", func() bool { return len(m.Held()) == 0 })
}

// TestShutdownTimes: nobody is waited for longer than configured, neither a pod that
// does not end nor an API server that is away.
func TestShutdownTimes(t *testing.T) {
	t.Parallel()
	n, m := goingDown(t)
	stop := n.rt.Stall(stopContainer)
	defer stop.Release()
	stuck := web("stuck")
	n.desire(stuck)
	n.until("it runs", func() bool { return n.settled(stuck.UID) })
	m.Shutdown(true)
	n.until("it is being stopped", func() bool { return stop.Caught() == 1 })
	n.clock.Step(14 * time.Second)
	if n.stage() != stageEnding || len(m.Held()) != 1 {
		t.Fatalf("%s, held by %v", n.stage(), m.Held())
	}
	n.pass("its time is over", time.Second, func() bool { return n.stage() != stageEnding })
	n.pass("the machine is let go", time.Second, func() bool { return n.stage() == stageEnded })
	n.await(m, "the machine to be let go", func() bool { return len(m.Held()) == 0 })
}

// TestRebootAfterShutdown: the machine is up again.
func TestRebootAfterShutdown(t *testing.T) {
	t.Parallel()
	n, m := goingDown(t)
	static := web("static", func(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} })
	n.desire(static)
	n.until("it runs", func() bool { return n.settled(static.UID) })
	m.Shutdown(true)
	n.until("it has ended, and is not failed", func() bool {
		return n.lifecycle(static.UID, released) && n.state(static.UID).GetVerdict() == nil
	})
	n.await(m, "the machine to be let go", func() bool { return len(m.Held()) == 0 })
	n.die()
	m.Shutdown(false)
	n.boot = "second"
	n.live()
	n.until("it runs again", func() bool { return n.running("static") && n.settled(static.UID) })
	if n.stage() != stageStaying || strings.Contains(strings.Join(n.told(), "\n"), "cancellation") {
		t.Errorf("%s; events %v", n.stage(), n.told())
	}
	n.await(m, "the machine to be held", func() bool { return len(m.Held()) == 1 })
}

// TestBusComesBack: a shutdown is heard of after the bus was away, and where there
// is none that is told.
func TestBusComesBack(t *testing.T) {
	t.Parallel()
	n, m := goingDown(t)
	m.StopBus()
	n.until("it is told that shutdowns would not wait", func() bool {
		item, _ := n.nodeState.Get(nodeKey)
		return item.GetError() != ""
	})
	m.StartBus()
	m.Orders()
	n.until("they do again", func() bool {
		item, _ := n.nodeState.Get(nodeKey)
		return item.GetError() == ""
	})
	m.Shutdown(true)
	n.until("the shutdown is heard of", func() bool { return n.stage() == stageEnded })
}

// TestShutdownNotAskedFor: without a time for pods the machine is nobody's business,
// and a change to that lets it go.
func TestShutdownNotAskedFor(t *testing.T) {
	t.Parallel()
	n, m := goingDown(t)
	n.reconfigure(func(c *kubeletconfig.Config) {
		c.Kubelet.ShutdownGracePeriod.Duration, c.Kubelet.ShutdownGracePeriodCriticalPods.Duration = 0, 0
	})
	n.await(m, "the machine to be let go", func() bool { return len(m.Held()) == 0 })
	m.Shutdown(true)
	p := web("a")
	n.desire(p)
	n.until("a pod runs", func() bool { return n.settled(p.UID) })
	if n.stage() != stageStaying {
		t.Errorf("%s", n.stage())
	}
}

func TestShutdownGroups(t *testing.T) {
	seconds := func(n int) (d kubeletv1beta1.KubeletConfiguration) {
		d.ShutdownGracePeriod.Duration = time.Duration(n) * time.Second
		return d
	}
	two := seconds(30)
	two.ShutdownGracePeriodCriticalPods.Duration = 10 * time.Second
	three := kubeletv1beta1.KubeletConfiguration{ShutdownGracePeriodByPodPriority: []kubeletv1beta1.ShutdownGracePeriodByPodPriority{
		{Priority: 1000, ShutdownGracePeriodSeconds: 20}, {Priority: 0, ShutdownGracePeriodSeconds: 10},
	}}
	off := two
	off.FeatureGates = map[string]bool{"GracefulNodeShutdown": false, "GracefulNodeShutdownBasedOnPodPriority": false}
	tests := []struct {
		name string
		k    kubeletv1beta1.KubeletConfiguration
		want []shutdown.Group
	}{
		{"none", kubeletv1beta1.KubeletConfiguration{}, nil},
		{"all alike", seconds(30), []shutdown.Group{{Priority: 0, Period: 30 * time.Second}, {Priority: 2_000_000_000}}},
		{"two phases", two, []shutdown.Group{{Period: 20 * time.Second}, {Priority: 2_000_000_000, Period: 10 * time.Second}}},
		{"by priority", three, []shutdown.Group{{Period: 10 * time.Second}, {Priority: 1000, Period: 20 * time.Second}}},
		{"gate off", off, nil},
	}
	for _, tt := range tests {
		got := shutdownGroups(&kubeletconfig.Config{Kubelet: tt.k})
		if len(got) != len(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	}
}
