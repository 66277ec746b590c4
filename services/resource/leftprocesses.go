// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
)

// endTimeout bounds one order to the supervisor.
const endTimeout = 10 * time.Second

// supervisor is the Ender of a node.
type supervisor struct {
	socket string
	client supervisorv1.SupervisorServiceClient
}

func dialSupervisor(kit *service.Kit) (supervisor, error) {
	socket := kit.Paths.Supervisor()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket})
	if err != nil {
		return supervisor{}, fmt.Errorf("dial supervisor: %w", err)
	}
	return supervisor{socket, supervisorv1.NewSupervisorServiceClient(conn)}, nil
}

// EndPod implements Ender. A node may run without a supervisor.
func (s supervisor) EndPod(ctx context.Context, uid string) error {
	if _, err := os.Stat(s.socket); err != nil {
		return rpc.Unavailable.Errorf("no supervisor is there to kill them: %w", err)
	}
	_, err := s.client.EndPod(ctx, &supervisorv1.EndPodRequest{PodUid: uid})
	return err
}

// remove removes the cgroup of a pod that has ended. Processes that are still in
// it the second time belong to no container, and are killed, as the kubelet does before
// it removes a pod's cgroup; the first time they may be about to end. Callers hold the
// pod's turn.
func (t *tree) remove(ctx context.Context, now *settings, h *held) error {
	if o := h.order; o != nil {
		select {
		case <-o.done:
			h.order = nil
			return t.killed(ctx, now, h, o.left, o.err)
		default:
			return o.left
		}
	}
	cgroups := t.of(h.Driver)
	err := cgroups.Remove(h.Cgroup)
	var busy *cgroup.BusyError
	if !errors.As(err, &busy) {
		return err
	}
	if !h.busy {
		h.busy = true
		return err
	}
	done, killErr := cgroups.Kill(h.Cgroup)
	if !done && killErr == nil {
		h.order = t.order(ctx, h.uid(), err)
		return err
	}
	return t.killed(ctx, now, h, err, killErr)
}

// order is one to the [Ender]. done is closed at its end, after err was written.
type order struct {
	left error // what the pod's cgroup held
	done chan struct{}
	err  error
}

// order has the Ender kill what a pod has left. Nothing waits for it, as one that hangs is
// to hold up no other pod; the loop is woken at its end.
func (t *tree) order(ctx context.Context, uid string, left error) *order {
	o := &order{left: left, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	go func() {
		defer cancel()
		o.err = t.ender.EndPod(ctx, uid)
		close(o.done)
		t.wake.Send()
	}()
	return o
}

// killed removes a pod's cgroup once what was left in it was killed, or tells why it was not.
func (t *tree) killed(ctx context.Context, now *settings, h *held, left, err error) error {
	if err != nil {
		t.reportLeft(ctx, now, h, fmt.Sprintf("error killing pod: %v, which cannot be killed: %v", left, err))
		return fmt.Errorf("%w: %w", left, err)
	}
	t.reportLeft(ctx, now, h, fmt.Sprintf("error killing pod: %v, which no container owned; they were killed", left))
	return t.of(h.Driver).Remove(h.Cgroup)
}

// reportLeft emits an event about what a pod has left, once: about the pod or, where
// nothing but its UID is known, about the node.
func (t *tree) reportLeft(ctx context.Context, now *settings, h *held, message string) {
	if h.left == message {
		return
	}
	h.left = message
	t.ledger.log.Warn(message, service.KeyUID, h.uid())
	switch {
	case h.pod.Name != "":
		t.events.pod(ctx, h.pod, v1.EventTypeWarning, reasonFailedKill, message)
	case now != nil:
		t.events.node(ctx, now, v1.EventTypeWarning, reasonFailedKill, message)
	}
}

// reasonFailedKill is the kubelet's word for a pod whose processes or cgroup do not go.
const reasonFailedKill = "FailedKillPod"
