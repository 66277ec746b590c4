// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/checkpoint"
	"github.com/sextant-node/sextant/services/podworker/internal/logs"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// server answers PodWorkerService.
type server struct {
	*logs.Server
	checkpoints *checkpoint.Maker
}

// Checkpoint implements PodWorkerService.
func (s server) Checkpoint(ctx context.Context, req *podworkerv1.CheckpointRequest) (*podworkerv1.CheckpointResponse, error) {
	location, err := s.checkpoints.Make(ctx, req.GetUid(), req.GetContainer(), req.GetTimeout().AsDuration())
	if err != nil {
		return nil, err
	}
	return &podworkerv1.CheckpointResponse{Location: location}, nil
}

// runningContainers finds what runs in pleg's records.
type runningContainers struct{ in *Inputs }

// Running implements checkpoint.Containers.
func (r runningContainers) Running(uid, container string) (checkpoint.Container, bool) {
	record, ok := r.in.Records.Get(uid)
	if !ok {
		return checkpoint.Container{}, false
	}
	for _, c := range record.Containers {
		if c.Name == container && c.State == step.Running {
			return checkpoint.Container{ID: c.ID, Namespace: record.Namespace, Pod: record.Name}, true
		}
	}
	return checkpoint.Container{}, false
}
