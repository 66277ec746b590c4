// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
)

// TestWhatIsCancelledHasNotFailed: a call to the runtime that the caller gives up is
// no event, no error in the metrics, and stops nothing.
func TestWhatIsCancelledHasNotFailed(t *testing.T) {
	hooked := func(p *v1.Pod) {
		hook := execs("true")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &hook, PreStop: &hook}
	}
	sandbox := func(n *node, ctx context.Context, p *v1.Pod) error {
		_, err := n.RunSandbox(ctx, SandboxSpec{Pod: p})
		return err
	}
	container := func(n *node, ctx context.Context, p *v1.Pod) error {
		_, err := n.StartContainer(ctx, n.up(p))
		return err
	}
	image := func(policy v1.PullPolicy) func(n *node, ctx context.Context, p *v1.Pod) error {
		return func(n *node, ctx context.Context, p *v1.Pod) error {
			_, err := n.EnsureImage(ctx, ImageSpec{Pod: p, Container: "web", Image: "r.example/app:1", Policy: policy})
			return err
		}
	}
	preStop := func(n *node, ctx context.Context, p *v1.Pod) error {
		id := n.run(web())
		n.events.take()
		return n.PreStop(ctx, KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: time.Minute})
	}
	stop := func(n *node, ctx context.Context, p *v1.Pod) error {
		id := n.run(web())
		return n.StopContainer(ctx, KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: time.Minute})
	}
	for _, tc := range []struct {
		name, method string
		act          func(n *node, ctx context.Context, p *v1.Pod) error
	}{
		{"a sandbox", "RunPodSandbox", sandbox},
		{"a creation", "CreateContainer", container},
		{"a start", "StartContainer", container},
		{"a postStart hook", "ExecSync", container},
		{"a preStop hook", "ExecSync", preStop},
		{"a look for an image", "ImageStatus", image(v1.PullIfNotPresent)},
		{"a pull", "PullImage", image(v1.PullAlways)},
		{"a stop", "StopContainer", stop},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := start(t, false)
			match := fakecri.Match{Method: tc.method}
			if tc.method == "ImageStatus" {
				match.Name = "r.example/app:1"
			}
			stall := n.rt.Stall(match)
			defer stall.Release()
			ctx, cancel := context.WithCancel(n.ctx())
			ended := make(chan error, 1)
			p := web(hooked)
			go func() { ended <- tc.act(n, ctx, p) }()
			if err := stall.Wait(n.ctx(), 1); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := <-ended; err == nil {
				t.Error("no error")
			}
			for _, event := range n.events.take() {
				if event[0] == 'W' || tc.name == "a postStart hook" && event[2] == 'K' {
					t.Errorf("event %s", event)
				}
			}
			if got := n.rt.Count(fakecri.Match{Method: "StopContainer"}); got > 0 && tc.method != "StopContainer" {
				t.Errorf("%d stops", got)
			}
			measure.Expect(t, n.metrics, map[string]float64{
				"kubelet_started_pods_errors_total":                                                               0,
				"kubelet_started_user_namespaced_pods_errors_total":                                               0,
				`kubelet_run_podsandbox_errors_total{runtime_handler=""}`:                                         math.NaN(),
				`kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"}`: math.NaN(),
				`kubelet_started_containers_errors_total{code="RunContainerError",container_type="container"}`:    math.NaN(),
				`kubelet_started_containers_errors_total{code="PostStartHookError",container_type="container"}`:   math.NaN(),
				`kubelet_started_containers_errors_total{code="ErrImagePull",container_type="container"}`:         math.NaN(),
			})
		})
	}
}

// TestNothingBeginsWhenCancelled: with a context that has ended no stop and no hook
// begins, and a container that was made is not started.
func TestNothingBeginsWhenCancelled(t *testing.T) {
	n := start(t, false)
	p := web(preStop(execs("true")))
	spec := n.up(p)
	id, err := n.StartContainer(n.ctx(), spec)
	if err != nil {
		t.Fatal(err)
	}
	n.events.take()
	ctx, cancel := context.WithCancel(n.ctx())
	cancel()
	err = n.StopContainer(ctx, KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: time.Minute, RunPreStop: true})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	n.wantEvents()
	if got := n.rt.Count(fakecri.Match{Method: "ExecSync"}) + n.rt.Count(fakecri.Match{Method: "StopContainer"}); got != 0 {
		t.Errorf("%d calls", got)
	}
	ctx, cancel = context.WithCancel(n.ctx())
	n.deps.Events = when{"Created", cancel}
	spec.RestartCount++
	made, err := n.StartContainer(ctx, spec)
	if !errors.Is(err, context.Canceled) || made == "" {
		t.Errorf("%q, %v", made, err)
	}
	if got := n.rt.Count(fakecri.Match{Method: "StartContainer"}); got != 1 {
		t.Errorf("%d starts, want the first alone", got)
	}
}

// when does something at an event.
type when struct {
	reason string
	do     func()
}

func (w when) Emit(_ context.Context, e *eventv1.Event) error {
	if e.GetReason() == w.reason {
		w.do()
	}
	return nil
}
