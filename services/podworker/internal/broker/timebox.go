// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
)

// backstop is how much longer than its caller asked for the runtime lets a
// command run: it ends only what the reaper did not.
const backstop = time.Second

// reapTimeout bounds one try to end a command.
const reapTimeout = 8 * time.Second

// reapAgain is how soon a command that was not found, or could not be told from
// another one that was just being started, is looked for again: on a busy machine
// its time may be over before it has begun.
const reapAgain = 200 * time.Millisecond

// timebox is the time a command has.
type timebox struct {
	timer *time.Timer
	// ended is closed when the runtime has answered.
	ended chan struct{}
	// over receives once the timer has fired and what it did is known.
	over chan error
}

// open starts a command's time and gives the runtime a little more of it. It
// returns nil for a command without an end, or that no reaper could end.
func (b *Broker) open(ctx context.Context, request *frame) *timebox {
	var r runtimeapi.ExecSyncRequest
	if b.reaper == nil || proto.Unmarshal(request.data, &r) != nil || r.GetTimeout() <= 0 || !b.reaper.There() {
		return nil
	}
	limit := pod.Seconds(r.GetTimeout())
	begun := service.SinceBoot()
	r.Timeout = int64((limit + backstop) / time.Second)
	longer, err := wire.Marshal(&r)
	if err != nil {
		return nil
	}
	request.data = longer
	box := &timebox{ended: make(chan struct{}), over: make(chan error, 1)}
	box.timer = time.AfterFunc(limit, func() {
		err := box.reap(func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reapTimeout)
			defer cancel()
			return b.reaper.EndExec(ctx, r.GetContainerId(), r.GetCmd(), begun)
		})
		if err != nil && !rpc.Is(err, rpc.NotFound) {
			b.log.WarnContext(ctx, "command not ended in time", "container", r.GetContainerId(), "error", err.Error())
		}
		box.over <- err
	})
	return box
}

// reap tries until the command is ended or the runtime says that it has ended.
func (t *timebox) reap(end func() error) error {
	again := time.NewTicker(reapAgain)
	defer again.Stop()
	for {
		err := end()
		if !rpc.Is(err, rpc.NotFound) && !rpc.Is(err, rpc.Conflict) {
			return err
		}
		select {
		case <-t.ended:
			return err
		case <-again.C:
		}
	}
}

// close ends the time and says what a command's end means: one that was killed has
// not exited.
func (t *timebox) close(err error) error {
	if t == nil || t.timer.Stop() {
		return err
	}
	close(t.ended)
	if <-t.over != nil {
		return err
	}
	return errTimeOver
}

var errTimeOver = status.Error(codes.DeadlineExceeded, "command ended: its time was over")
