// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/images"
)

// unused counts how often unused images were to be removed.
type unused struct{ times atomic.Int32 }

func (u *unused) RemoveUnused(context.Context) error {
	u.times.Add(1)
	return nil
}

// TestReclaim: on resource's request the dead containers of a pod that is over go, and
// those of a pod that runs stay; images go if they were asked for. The answer is the
// request's time, and a request that failed is carried out again.
func TestReclaim(t *testing.T) {
	n := newNode(t)
	n.live()
	over := web("over", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
	n.desire(over)
	runs := web("runs")
	n.desire(runs)
	n.until("up", func() bool {
		return n.running("over") && n.running("runs") && n.settled(over.UID) && n.settled(runs.UID)
	})
	n.clock.Step(time.Second)
	n.rt.Exit(n.rt.Container("over", "web").GetId(), 0)
	n.rt.Exit(n.rt.Container("runs", "web").GetId(), 1)
	n.until("one is over and one runs again", func() bool { return n.released(over.UID) && n.running("runs") })
	if got := len(n.rt.Containers()); got != 3 {
		t.Fatalf("%d containers", got)
	}
	u := &unused{}
	r := newReclaimer(n.loop, u, func() (images.Used, bool) { return images.Used{}, true }, n.clock)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	ask := func(second int64, of *resourcev1.Reclaim) {
		t.Helper()
		of.Time = timestamppb.New(time.Unix(second, 5))
		n.set(n.capacity.Set(context.Background(), "node", &resourcev1.NodeResources{CgroupVersion: 2, Reclaim: of}))
		n.pass("answered", 100*time.Millisecond, func() bool {
			state, _ := n.nodeState.Get(nodeKey)
			return state.GetReclaimed().AsTime().Equal(of.GetTime().AsTime())
		})
	}
	ask(1, &resourcev1.Reclaim{Images: true})
	if got := len(n.rt.Containers()); got != 3 || u.times.Load() != 1 {
		t.Errorf("images alone: %d containers, images %d times", got, u.times.Load())
	}
	defer fault.Set("") //nolint:errcheck // nothing to parse
	if err := fault.Set("podworker.reclaim=1*error(no)"); err != nil {
		t.Fatal(err)
	}
	began := n.clock.Now()
	ask(2, &resourcev1.Reclaim{Containers: true})
	if took := n.clock.Since(began); took < layerTime {
		t.Errorf("answered %s after the containers: their layers may be there still", took)
	}
	if got := n.rt.Containers(); len(got) != 2 || u.times.Load() != 1 {
		t.Errorf("containers alone: %v, images %d times", got, u.times.Load())
	}
	for _, c := range n.rt.Containers() {
		if c.GetLabels()["io.kubernetes.pod.name"] != "runs" {
			t.Errorf("left: %v", c)
		}
	}
}
