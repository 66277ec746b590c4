// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/quiet"
)

// MaxMessage bounds one message either way, in bytes. Feeds come in pages of 8 MiB.
const MaxMessage = 64 << 20

// ReadBuffer is what either end of a connection between services reads into, in
// bytes. Most messages are smaller; larger ones take more reads. A node has some
// seventy ends, idle nearly always, and gRPC would keep 32 KiB for each to read
// and 32 to write.
const ReadBuffer = 4 << 10

// Window is how much is on its way before it is read, in bytes, on a stream and on a
// connection. It is fixed: gRPC would otherwise find out what suits by a ping and an
// answer for each message, which is more to do than most of the messages.
const Window = 1 << 20

// workers are goroutines that are kept to handle calls. What comes while all of them are
// busy has a goroutine of its own.
const workers = 4

// ServerConfig is what a server needs.
type ServerConfig struct {
	// Socket is the path to listen on; a stale socket is replaced.
	Socket string
	// Identities decide who a peer is.
	Identities house.Identities
	Log        *slog.Logger
	Metrics    prometheus.Registerer
	// MaxRequest bounds a request, in bytes; MaxMessage when zero.
	MaxRequest int
	// MaxCalls bounds the calls of one connection that are under way; the caller
	// waits with others. No bound when zero.
	MaxCalls uint32
	// Options are added to the gRPC server (the broker's codec, for example).
	Options []grpc.ServerOption
}

// Server is a gRPC server on one Unix socket.
type Server struct {
	*grpc.Server
	cfg       ServerConfig
	listening chan struct{}
}

// NewServer builds a server; it listens only in Run. Services register on it
// before that.
func NewServer(cfg ServerConfig) (*Server, error) {
	cfg.MaxRequest = cmp.Or(cfg.MaxRequest, MaxMessage)
	metrics := grpcprom.NewServerMetrics()
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(metrics); err != nil {
			// The second server of a process (the broker) shares the first one's.
			var already prometheus.AlreadyRegisteredError
			if !errors.As(err, &already) {
				return nil, fmt.Errorf("register gRPC metrics: %w", err)
			}
			metrics = already.ExistingCollector.(*grpcprom.ServerMetrics)
		}
	}
	panicked := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		cfg.Log.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		return Internal.Errorf("panic: %v", p)
	})
	logger := logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
		cfg.Log.Log(ctx, slog.Level(level), msg, fields...)
	})
	logOptions := []logging.Option{
		logging.WithLogOnEvents(logging.FinishCall),
		logging.WithLevels(callLevel),
	}
	refusals := quiet.NewLog(cfg.Log) // any local user may knock, as often as they like
	creds := &peerCreds{ids: cfg.Identities, refused: func(uid uint32, pid int32) {
		refusals.Say(slog.LevelWarn, fmt.Sprint(uid), "peer refused", "uid", uid, "pid", pid, "socket", cfg.Socket)
	}}
	options := append([]grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(cfg.MaxRequest),
		grpc.MaxConcurrentStreams(cfg.MaxCalls),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.ReadBufferSize(ReadBuffer),
		grpc.StaticStreamWindowSize(Window),
		grpc.StaticConnWindowSize(Window),
		grpc.SharedWriteBuffer(true),
		// A call that finds one of them idle does not have a stack to grow.
		grpc.NumStreamWorkers(workers),
		grpc.ChainUnaryInterceptor(
			metrics.UnaryServerInterceptor(),
			logging.UnaryServerInterceptor(logger, logOptions...),
			errorUnary,
			recovery.UnaryServerInterceptor(panicked),
			authorizeUnary,
		),
		grpc.ChainStreamInterceptor(
			metrics.StreamServerInterceptor(),
			logging.StreamServerInterceptor(logger, logOptions...),
			errorStream,
			recovery.StreamServerInterceptor(panicked),
			authorizeStream,
		),
	}, cfg.Options...)
	return &Server{Server: grpc.NewServer(options...), cfg: cfg, listening: make(chan struct{})}, nil
}

// Listening is closed when clients may come.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// Run listens and serves until ctx ends, then gives calls two seconds to
// finish. Clients may come and go; only a socket that cannot be made is an
// error. It is called once.
func (s *Server) Run(ctx context.Context) error {
	listener, err := Listen(s.cfg.Socket)
	if err != nil {
		return err
	}
	close(s.listening)
	stop := context.AfterFunc(ctx, func() {
		done := make(chan struct{})
		go func() { s.GracefulStop(); close(done) }()
		select {
		case <-done:
		case <-time.After(2 * time.Second):
			s.Stop()
		}
	})
	defer stop()
	if err := s.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", s.cfg.Socket, err)
	}
	return nil
}

// Listen makes a Unix socket that any uid may connect to; who may talk is
// decided by credentials. The socket appears under its name only when it is
// listening, so that a client never meets a dead one.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket folder: %w", err)
	}
	fresh := path + ".new"
	if err := file.Remove(fresh); err != nil {
		return nil, fmt.Errorf("stale socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o666), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("publish socket %s: %w", path, err), listener.Close())
	}
	return listener, nil
}
