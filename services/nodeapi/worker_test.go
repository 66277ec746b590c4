// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"context"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// worker is podworker's part: pod ns/p has a container "c" whose log is the lines
// the test appends. A cursor is a number of bytes.
type worker struct {
	podworkerv1.UnimplementedPodWorkerServiceServer
	mu      sync.Mutex
	log     string
	ended   bool
	grown   chan struct{}
	request []*podworkerv1.ContainerLogsRequest
}

func newWorker() *worker { return &worker{grown: make(chan struct{})} }

func (w *worker) write(text string) { w.change(func() { w.log += text }) }

// end lets those who follow the log come to its end.
func (w *worker) end() { w.change(func() { w.ended = true }) }

func (w *worker) change(edit func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	edit()
	close(w.grown)
	w.grown = make(chan struct{})
}

func (w *worker) requests() []*podworkerv1.ContainerLogsRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*podworkerv1.ContainerLogsRequest(nil), w.request...)
}

func (w *worker) ContainerLogs(req *podworkerv1.ContainerLogsRequest, stream grpc.ServerStreamingServer[podworkerv1.ContainerLogsResponse]) error {
	at := 0
	if text := string(req.GetAfter()); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return rpc.Invalid.Errorf("after: %w", err)
		}
		at = n
	}
	w.mu.Lock()
	w.request = append(w.request, req)
	w.mu.Unlock()
	switch {
	case req.GetNamespace() != "ns" || req.GetPod() != "p":
		return rpc.NotFound.Errorf("pod %s/%s not found", req.GetNamespace(), req.GetPod())
	case req.GetContainer() != "c":
		return rpc.Conflict.Errorf("container %s is waiting to start", req.GetContainer())
	case req.TailLines != nil && req.GetTailLines() < 0:
		return rpc.Invalid.Errorf("tailLines: must not be negative")
	}
	limit := int(req.GetLimitBytes())
	for {
		w.mu.Lock()
		part, grown, ended := w.log[at:], w.grown, w.ended
		w.mu.Unlock()
		if req.LimitBytes != nil && len(part) > limit {
			part = part[:limit]
		}
		limit -= len(part)
		if part != "" {
			at += len(part)
			if err := stream.Send(&podworkerv1.ContainerLogsResponse{Data: []byte(part), Cursor: []byte(strconv.Itoa(at))}); err != nil {
				return err
			}
		}
		if !req.GetFollow() || ended || req.LimitBytes != nil && limit == 0 {
			return nil
		}
		select {
		case <-grown:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Checkpoint makes an archive of container "c" alone, and tells in its name what
// was allowed.
func (w *worker) Checkpoint(_ context.Context, req *podworkerv1.CheckpointRequest) (*podworkerv1.CheckpointResponse, error) {
	if req.GetContainer() != "c" {
		return nil, rpc.Internal.Errorf("no criu")
	}
	return &podworkerv1.CheckpointResponse{Location: "/checkpoints/" + req.GetUid() + "-c-" + req.GetTimeout().AsDuration().String()}, nil
}

// startWorker starts podworker, the first time or again.
func (r *rig) startWorker() {
	r.Helper()
	kit := r.Kit(house.PodWorker)
	podworkerv1.RegisterPodWorkerServiceServer(kit.Server, r.worker)
	kit.Serving()
	r.stopWorker = r.Start(kit)
}
