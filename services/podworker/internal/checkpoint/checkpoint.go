// SPDX-License-Identifier: Apache-2.0

// Package checkpoint has the runtime write containers' state to archives.
//
// It owns the names of the archives below <root-dir>/checkpoints, which are the
// kubelet's; the runtime writes them. No caller names a file: it says
// which container. It keeps nothing, and an archive that a kill interrupted is
// the runtime's to finish.
package checkpoint

import (
	"context"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// Dir is the folder of the archives below the root directory; its mode is 0700.
const Dir = "checkpoints"

// Container is one that runs.
type Container struct {
	// ID is the runtime's.
	ID string
	// Namespace and Pod are of the pod it belongs to.
	Namespace, Pod string
}

// Containers finds what runs.
type Containers interface {
	// Running finds the running container of that name of a pod.
	Running(uid, container string) (Container, bool)
}

// Runtime is the part of the CRI that is needed.
type Runtime interface {
	CheckpointContainer(ctx context.Context, in *runtimeapi.CheckpointContainerRequest, opts ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error)
}

// Deps is what a Maker works with.
type Deps struct {
	Containers Containers
	Runtime    Runtime
	Clock      clock.PassiveClock
	// Timeout is asked at each call for runtimeRequestTimeout.
	Timeout func() time.Duration
}

// Maker makes archives.
type Maker struct {
	rootDir string
	deps    Deps
}

// New makes a Maker for a root directory.
func New(rootDir string, deps Deps) *Maker { return &Maker{rootDir, deps} }

// Make writes an archive and returns its path. What the caller allows counts if
// it is more than runtimeRequestTimeout (the kubelet's CRI client has it so).
func (m *Maker) Make(ctx context.Context, uid, container string, allowed time.Duration) (string, error) {
	c, ok := m.deps.Containers.Running(uid, container)
	if !ok {
		return "", rpc.NotFound.Errorf("container %v not found", container)
	}
	timeout := max(allowed, m.deps.Timeout())
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	location := Path(m.rootDir, c, container, m.deps.Clock.Now())
	_, err := m.deps.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: c.ID, Location: location, Timeout: int64(timeout / time.Second),
	})
	if err != nil {
		return "", err
	}
	return location, nil
}

// Path is where the archive of a container made at some time is.
func Path(rootDir string, c Container, container string, at time.Time) string {
	return filepath.Join(rootDir, Dir, "checkpoint-"+c.Pod+"_"+c.Namespace+"-"+container+"-"+at.Format(time.RFC3339)+".tar")
}
