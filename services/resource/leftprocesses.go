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
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, err := s.client.EndPod(ctx, &supervisorv1.EndPodRequest{PodUid: uid})
	return err
}

// remove removes the cgroup of a pod that has ended. Processes that are still in
// it the second time belong to no container, and are killed, as the kubelet does before
// it removes a pod's cgroup; the first time they may be about to end. Callers hold the
// pod's turn.
func (t *tree) remove(ctx context.Context, now *settings, h *held) error {
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
		killErr = t.ender.EndPod(ctx, h.uid())
	}
	if killErr != nil {
		t.reportLeft(ctx, now, h, fmt.Sprintf("error killing pod: %v, which cannot be killed: %v", err, killErr))
		return fmt.Errorf("%w: %w", err, killErr)
	}
	t.reportLeft(ctx, now, h, fmt.Sprintf("error killing pod: %v, which no container owned; they were killed", err))
	return cgroups.Remove(h.Cgroup)
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
