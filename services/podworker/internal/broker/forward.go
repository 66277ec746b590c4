// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/containerd"
	"github.com/sextant-node/sextant/pkg/pod"
)

var asStream = &grpc.StreamDesc{ServerStreams: true}

// forward passes one call on: its one request, then every answer until the
// runtime ends. Unary calls are streams of one answer. The caller has been
// authorized before.
func (b *Broker) forward(_ any, in grpc.ServerStream) (err error) {
	name, _ := grpc.MethodFromServerStream(in)
	m, ok := methods[name]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	done := b.metrics.observe(m.operation)
	defer func() { done(err) }()

	var request frame
	if err := in.RecvMsg(&request); err != nil {
		return err
	}
	ctx, cancel := bound(in.Context(), m.limit(b.cfg.Timeout()))
	defer cancel()
	if name == execSync {
		return b.execSync(ctx, in, request)
	}
	return b.pass(ctx, in, m, name, &request)
}

// pass sends a request to the runtime and hands each answer to the caller.
func (b *Broker) pass(ctx context.Context, in grpc.ServerStream, m method, name string, request *frame) error {
	conn := b.runtime
	if m.image {
		conn = b.images
	}
	out, err := conn.NewStream(ctx, asStream, name, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	// An error here shows again, with its cause, in RecvMsg.
	if err := out.SendMsg(request); err == nil {
		_ = out.CloseSend()
	}
	for {
		var answer frame
		switch err := out.RecvMsg(&answer); {
		case errors.Is(err, io.EOF):
			in.SetTrailer(out.Trailer())
			return nil
		case err != nil:
			in.SetTrailer(out.Trailer())
			return err
		}
		if err := in.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// longestWait is for how long a stop of much grace lets those of less go first.
const longestWait = 30 * time.Second

// bound limits a call; 0 for no limit.
func bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit > 0 {
		return context.WithTimeout(ctx, limit)
	}
	return context.WithCancel(ctx)
}

// inProcess does for podworker's own calls what forward does for others', and has
// those that start, stop or remove something wait for their turn.
func (b *Broker) inProcess(ctx context.Context, name string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
	m, ok := methods[name]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	stop, _ := req.(*runtimeapi.StopContainerRequest)
	grace := pod.Seconds(stop.GetTimeout())
	if turn, ok := b.turns[m.kind]; ok {
		// Of two stops that of less grace comes first, as one for want of memory has.
		if err := turn.queue.EnterHeld(ctx, turn.rules, min(grace, longestWait)); err != nil {
			return status.FromContextError(err).Err()
		}
		defer turn.queue.Leave()
	}
	if m.kind == starting {
		var end context.CancelFunc
		ctx, end = outlasting(ctx, b.cfg.Finish)
		defer end()
	}
	done := b.metrics.observe(m.operation)
	limit := m.limit(b.cfg.Timeout())
	if m.patience == graceful {
		limit = grace + b.cfg.Timeout()
	}
	ctx, cancel := bound(ctx, limit)
	defer cancel()
	defer func() { done(err) }()
	if name == execSync {
		return b.ownCommand(ctx, req, reply)
	}
	if removal, ok := req.(*runtimeapi.RemoveContainerRequest); ok {
		refused, err := containerd.Remove(ctx, removal.GetContainerId(), func(ctx context.Context, name string, req, reply any) error {
			return call(ctx, name, req, reply, conn, opts...)
		})
		if refused != nil {
			b.log.Warn("ended a task of which the runtime's CRI service did not know", "container", removal.GetContainerId(), "refused", refused)
		}
		return err
	}
	return call(ctx, name, req, reply, conn, opts...)
}

// outlasting is a context that ends a while after another one.
func outlasting(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(while, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}
