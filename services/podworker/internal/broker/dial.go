// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// endpoint turns unix:///path, or a plain absolute path, into a path.
func endpoint(field, value string) (string, error) {
	path := strings.TrimPrefix(value, "unix://")
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s %q: want unix:///path/of/the/socket", field, value)
	}
	return path, nil
}

// window is how much of an answer that is not being read yet the runtime may send, in
// bytes: HTTP/2's own. What is being read comes whole.
const window = 64 << 10

// dial prepares the connection to a runtime's socket. It connects when first
// used; keepConnected connects before that and again.
func dial(socket string, unary grpc.UnaryClientInterceptor) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpc.MaxMessage), grpc.MaxCallSendMsgSize(rpc.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(rpc.Window),
		grpc.WithIdleTimeout(0),
		grpc.WithUnaryInterceptor(unary),
	)
}

// keepConnected connects whenever a connection is not, until ctx ends.
func keepConnected(ctx context.Context, conn *grpc.ClientConn, log *slog.Logger) {
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Idle:
			conn.Connect()
		case connectivity.Ready:
			log.Info("runtime connected", "endpoint", conn.Target())
		case connectivity.TransientFailure:
			log.Warn("runtime away", "endpoint", conn.Target())
		}
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}
