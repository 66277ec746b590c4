// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// reaper has the supervisor end commands in containers (broker.Reaper).
type reaper struct {
	socket string
	client supervisorv1.SupervisorServiceClient
}

func dialReaper(kit *service.Kit) (*reaper, error) {
	socket := kit.Paths.Supervisor()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket})
	if err != nil {
		return nil, err
	}
	return &reaper{socket, supervisorv1.NewSupervisorServiceClient(conn)}, nil
}

// There implements broker.Reaper: a node may run without a supervisor.
func (r *reaper) There() bool {
	_, err := os.Stat(r.socket)
	return err == nil
}

// EndExec implements broker.Reaper.
func (r *reaper) EndExec(ctx context.Context, containerID string, command []string, began time.Duration) error {
	_, err := r.client.EndExec(ctx, &supervisorv1.EndExecRequest{ContainerId: containerID, Command: command, Began: durationpb.New(began)})
	return err
}
