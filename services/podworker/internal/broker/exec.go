// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/wire"
)

// execSync is the one method that is more than passed on.
const execSync = runtimeapi.RuntimeService_ExecSync_FullMethodName

// maxAnswer bounds the answer of a command, in bytes. It is what a kubelet receives
// of a runtime at most.
const maxAnswer = 16 << 20

// answersAtOnce is how many answers of commands are received at a time. A container
// decides how large its answers are; those that wait stay with the runtime, but for a
// window each.
const answersAtOnce = 2

// probeOutput is how much of each output of a probe or a lifecycle hook is kept, in
// bytes: the 10 KiB that a kubelet reads, and a character more, so that the reader
// sees which is the last whole one.
const probeOutput = 10<<10 + utf8.UTFMax

var asCall = &grpc.StreamDesc{}

// probesOnly reports whether the caller may run commands as prober alone.
func probesOnly(ctx context.Context) bool {
	return !rpc.PeerFrom(ctx).Any(func(s house.Service) bool { return s != house.Prober && house.MayCall(s, execSync) })
}

// execSync passes a command on. Prober's must be a probe, and its output is cut.
func (b *Broker) execSync(ctx context.Context, in grpc.ServerStream, request frame) error {
	keep := maxAnswer
	var r runtimeapi.ExecSyncRequest
	invalid := proto.Unmarshal(request.data, &r)
	if probesOnly(ctx) {
		if invalid != nil {
			return status.Errorf(codes.InvalidArgument, "ExecSyncRequest: %v", invalid)
		}
		if err := b.mayProbe(ctx, b.Runtime(), r.GetContainerId(), r.GetCmd()); err != nil {
			return err
		}
		// What was checked goes on, not what another decoder may make of the bytes.
		data, err := wire.Marshal(&r)
		if err != nil {
			return err
		}
		request.data, keep = data, probeOutput
	}
	ctx, cancel := b.patient(ctx, r.GetTimeout())
	defer cancel()
	answer, trailer, err := b.command(ctx, request, keep)
	in.SetTrailer(trailer)
	if err != nil && !errors.Is(err, errTimeOver) && errors.Is(context.Cause(ctx), errNoAnswer) {
		err = status.Error(codes.Unavailable, errNoAnswer.Error())
	}
	if err != nil {
		return err
	}
	return in.SendMsg(&answer)
}

// errNoAnswer says nothing of the command, which may never have run.
var errNoAnswer = errors.New("the runtime did not answer")

// patient ends ctx runtimeRequestTimeout after the seconds that a command has, if it has any, as the
// kubelet's CRI client does.
func (b *Broker) patient(ctx context.Context, seconds int64) (context.Context, context.CancelFunc) {
	if seconds <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, pod.Seconds(seconds)+backstop+b.cfg.Timeout(), errNoAnswer)
}

// ownCommand runs a command of podworker's own, which is a lifecycle hook.
func (b *Broker) ownCommand(ctx context.Context, request, reply any) error {
	data, err := wire.Marshal(request.(proto.Message))
	if err != nil {
		return err
	}
	answer, _, err := b.command(ctx, frame{data}, probeOutput)
	if err != nil {
		return err
	}
	return proto.Unmarshal(answer.data, reply.(proto.Message))
}

// command has the runtime run a command within its time. It keeps no more than keep
// bytes of each output. The caller ends ctx afterwards.
func (b *Broker) command(ctx context.Context, request frame, keep int) (answer frame, trailer metadata.MD, err error) {
	box := b.open(ctx, &request)
	out, err := b.runtime.NewStream(ctx, asCall, execSync, grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxAnswer))
	if err != nil {
		return answer, nil, box.close(err)
	}
	// An error of these shows again, with its cause, in RecvMsg.
	_ = out.SendMsg(&request)
	_, _ = out.Header() // comes when the command has ended
	if err := box.close(nil); err != nil {
		return answer, nil, err
	}
	select {
	case b.answers <- struct{}{}:
		defer func() { <-b.answers }()
	case <-ctx.Done():
		return answer, nil, status.FromContextError(ctx.Err()).Err()
	}
	if err = out.RecvMsg(&answer); err == nil {
		if exitCode(answer) != 0 { // which is an error of the call to a kubelet
			b.metrics.failed.WithLabelValues(methods[execSync].operation).Inc()
		}
		answer, err = cut(answer, keep)
	}
	return answer, out.Trailer(), err
}

// exitCode reads field 3 of an ExecSyncResponse; 0 if there is none that can be read.
// The outputs, which may be long, are not copied.
func exitCode(answer frame) (code uint64) {
	for data := answer.data; len(data) > 0; {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return 0
		}
		if number == 3 && kind == protowire.VarintType {
			code, _ = protowire.ConsumeVarint(data[n:])
		}
		length := protowire.ConsumeFieldValue(number, kind, data[n:])
		if length < 0 {
			return 0
		}
		data = data[n+length:]
	}
	return code
}

// cut is an answer with no more than limit bytes of each output.
func cut(answer frame, limit int) (frame, error) {
	if len(answer.data) <= limit {
		return answer, nil
	}
	var r runtimeapi.ExecSyncResponse
	if err := proto.Unmarshal(answer.data, &r); err != nil {
		return frame{}, status.Errorf(codes.Internal, "ExecSyncResponse: %v", err)
	}
	r.Stdout, r.Stderr = r.Stdout[:min(len(r.Stdout), limit)], r.Stderr[:min(len(r.Stderr), limit)]
	data, err := wire.Marshal(&r)
	return frame{data}, err
}
