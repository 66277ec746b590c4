// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"bytes"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri/internal/shell"
)

func (s *runtimeServer) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	r := s.r
	r.mu.Lock()
	c, ok := byID(r.containers, req.GetContainerId())
	if !ok {
		r.mu.Unlock()
		return nil, notFound("failed to find container %q in store", req.GetContainerId())
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		defer r.mu.Unlock()
		return nil, failure("failed to exec in container: container is in %s state", c.state)
	}
	if len(req.GetCmd()) == 0 {
		r.mu.Unlock()
		return nil, failure("failed to exec in container: OCI runtime exec failed: exec failed: args must not be empty: unknown")
	}
	script, args, err := program(c.image, req.GetCmd(), nil)
	if err != nil {
		r.mu.Unlock()
		return nil, failure("failed to exec in container: failed to start exec: %v", startError("exec", req.GetCmd()[0]))
	}
	var out, errb bytes.Buffer
	p := r.process(c, &out, &errb)
	p.Args = args
	r.busy++
	r.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	finished := make(chan shell.Exit, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		exit := p.Run(ctx, script)
		r.mu.Lock()
		r.busy--
		r.notify()
		r.mu.Unlock()
		finished <- exit
	})
	defer wg.Wait()
	defer cancel()

	var late <-chan time.Time
	if req.GetTimeout() > 0 {
		t := r.cfg.Clock.NewTimer(time.Duration(req.GetTimeout()) * time.Second)
		defer t.Stop()
		late = t.C()
		r.poke() // the timer is set
	}
	select {
	case exit := <-finished:
		if err := ctx.Err(); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		return &runtimeapi.ExecSyncResponse{Stdout: out.Bytes(), Stderr: errb.Bytes(), ExitCode: exit.Code}, nil
	case <-c.done: // takes all its processes with it
		cancel()
		<-finished
		return &runtimeapi.ExecSyncResponse{Stdout: out.Bytes(), Stderr: errb.Bytes(), ExitCode: 137}, nil
	case <-late:
		return nil, status.Errorf(codes.DeadlineExceeded,
			"failed to exec in container: timeout %ds exceeded: context deadline exceeded", req.GetTimeout())
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
