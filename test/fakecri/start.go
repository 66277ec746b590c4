// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Start serves a Runtime until the test ends, and waits for its end then.
func Start(tb testing.TB, cfg Config) *Runtime {
	tb.Helper()
	r, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("fake runtime: %v", err)
		}
	})
	if err := r.WaitFor(tb.Context(), r.serving); err != nil {
		tb.Fatal(err)
	}
	return r
}

func (r *Runtime) serving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server != nil
}

// Conn is a client connection that reconnects quickly and is closed when the
// test ends.
func (r *Runtime) Conn(tb testing.TB) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient(r.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.5, MaxDelay: 50 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
	)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() }) //nolint:errcheck // nothing follows
	return conn
}
