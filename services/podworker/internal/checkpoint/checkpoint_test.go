// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/services/podworker/internal/checkpoint"
	"github.com/sextant-node/sextant/test/fakecri"
)

type one struct{ checkpoint.Container }

func (o one) Running(uid, container string) (checkpoint.Container, bool) {
	return o.Container, uid == "u" && container == "web"
}

func TestMake(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600))
	m := checkpoint.New("/kubelet", checkpoint.Deps{
		Containers: one{checkpoint.Container{ID: "0123", Namespace: "ns", Pod: "p"}},
		Runtime:    runtimeapi.NewRuntimeServiceClient(rt.Conn(t)),
		Clock:      clocktesting.NewFakePassiveClock(at),
		Timeout:    func() time.Duration { return 2 * time.Minute },
	})
	if _, err := m.Make(t.Context(), "u", "other", 0); !rpc.Is(err, rpc.NotFound) || err.Error() != "container other not found" {
		t.Errorf("a container that does not run: %v", err)
	}
	for _, test := range []struct {
		allowed time.Duration
		seconds int64
	}{{0, 120}, {time.Second, 120}, {10 * time.Minute, 600}} {
		if _, err := m.Make(t.Context(), "u", "web", test.allowed); err == nil {
			t.Error("a runtime that cannot made an archive")
		}
		calls := rt.Calls(fakecri.Match{Method: "CheckpointContainer"})
		req := calls[len(calls)-1].Request.(*runtimeapi.CheckpointContainerRequest)
		if want := "/kubelet/checkpoints/checkpoint-p_ns-web-2026-03-04T05:06:07+01:00.tar"; req.GetLocation() != want || req.GetContainerId() != "0123" {
			t.Errorf("asked for %v, want %s", req, want)
		}
		if req.GetTimeout() != test.seconds {
			t.Errorf("allowed %s: %d s, want %d", test.allowed, req.GetTimeout(), test.seconds)
		}
	}
}
