// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"cmp"
	"context"
	"io"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/timeout"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// ClientConfig is how to reach one peer.
type ClientConfig struct {
	// Socket path of the peer.
	Socket string
	// Timeout bounds each unary call; zero means 10 s.
	Timeout time.Duration
	// Patient calls wait for a peer that is not there, as long as Timeout.
	Patient bool
	// Metrics may be nil.
	Metrics *grpcprom.ClientMetrics
}

// Dial prepares a connection; it connects when first used and again, within
// 200 ms, whenever the peer comes back.
func Dial(cfg ClientConfig) (*grpc.ClientConn, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	unary := []grpc.UnaryClientInterceptor{errorUnaryClient, timeout.UnaryClientInterceptor(cfg.Timeout)}
	stream := []grpc.StreamClientInterceptor{errorStreamClient}
	if cfg.Metrics != nil {
		unary = append(unary, cfg.Metrics.UnaryClientInterceptor())
		stream = append(stream, cfg.Metrics.StreamClientInterceptor())
	}
	return grpc.NewClient("unix:"+cfg.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage), grpc.WaitForReady(cfg.Patient), grpc.ForceCodecV2(newCodec())),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithReadBufferSize(ReadBuffer),
		grpc.WithStaticStreamWindowSize(Window),
		grpc.WithStaticConnWindowSize(Window),
		grpc.WithSharedWriteBuffer(true),
		// A Unix socket does not go idle, and a reconnect on first use would
		// cost the first pull after a quiet half hour.
		grpc.WithIdleTimeout(0),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Minute}),
		grpc.WithChainUnaryInterceptor(unary...),
		grpc.WithChainStreamInterceptor(stream...),
	)
}

func errorUnaryClient(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header, trailer metadata.MD // an answer has one of them at least
	err := call(ctx, method, req, reply, conn, append(opts, grpc.Header(&header), grpc.Trailer(&trailer))...)
	return fromWire(err, header.Len()+trailer.Len() > 0)
}

func errorStreamClient(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, fromWire(err, true)
	}
	return &clientStream{s}, nil
}

type clientStream struct{ grpc.ClientStream }

func (c *clientStream) RecvMsg(m any) error {
	err := c.ClientStream.RecvMsg(m)
	if err == io.EOF {
		return err
	}
	return fromWire(err, true)
}
