// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is one fake runtime. All its methods may be called at any time by
// any goroutine, before, during and after Run.
type Runtime struct {
	cfg    Config
	ownDir string // directory of the socket, removed at the end; empty if not ours

	world  // what a runtime keeps
	faults // what it was told to do wrong
	calls  // what was asked of it

	// mu guards everything above and below.
	mu        sync.Mutex
	changed   chan struct{}  // closed and replaced at every change
	running   bool           // Run has been called and has not returned
	over      bool           // Run returns: a call under way starts nothing any more
	processes sync.WaitGroup // of containers
	up        bool           // whether it shall serve
	gen       uint64         // counts the servers, so that Restart makes a new one
	server    *grpc.Server   // nil while not serving
	streams   *streams       // beside server
	cycle     chan struct{}  // tells Run that up or gen changed
}

// New makes a Runtime that is not yet served. It fails for a bad Config.
func New(cfg Config) (*Runtime, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		cfg:     cfg,
		changed: make(chan struct{}),
		cycle:   make(chan struct{}, 1),
		up:      true,
	}
	r.world.init(cfg)
	for _, img := range cfg.Images {
		if err := r.preload(img); err != nil {
			return nil, fmt.Errorf("fakecri: config: images: %w", err)
		}
	}
	if cfg.Socket == "" {
		// A test's own directory may be too deep for the 108 bytes of a socket path.
		if r.ownDir, err = os.MkdirTemp("", "fakecri"); err != nil {
			return nil, fmt.Errorf("fakecri: config: socket: %w", err)
		}
		r.cfg.Socket = filepath.Join(r.ownDir, "cri.sock")
	}
	return r, nil
}

// Socket is the path of the Unix socket.
func (r *Runtime) Socket() string { return r.cfg.Socket }

// Endpoint is the socket as a kubelet's containerRuntimeEndpoint names it.
func (r *Runtime) Endpoint() string { return "unix://" + r.cfg.Socket }

// Run serves until ctx ends; then all processes are killed. It is called once.
func (r *Runtime) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return errors.New("fakecri: Run called twice")
	}
	r.running = true
	r.mu.Unlock()
	defer r.end()
	for ctx.Err() == nil {
		r.mu.Lock()
		up, gen := r.up, r.gen
		r.mu.Unlock()
		if !up {
			select {
			case <-r.cycle:
			case <-ctx.Done():
			}
			continue
		}
		if err := r.serve(ctx, gen); err != nil {
			return err
		}
	}
	return nil
}

// serve runs one server until ctx ends or Down or Restart stops it.
func (r *Runtime) serve(ctx context.Context, gen uint64) error {
	if err := os.Remove(r.cfg.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("fakecri: socket: %w", err)
	}
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.cfg.Socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("fakecri: socket: %w", err)
	}
	// A killed runtime leaves its socket behind: connecting is refused.
	lis.SetUnlinkOnClose(false)
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20),
		grpc.UnaryInterceptor(r.unary), grpc.StreamInterceptor(r.stream),
	)
	runtimeapi.RegisterRuntimeServiceServer(srv, &runtimeServer{r: r})
	runtimeapi.RegisterImageServiceServer(srv, &imageServer{r: r})
	tasks.RegisterTasksServer(srv, &tasksServer{r: r})

	streams, err := r.serveStreams()
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	defer streams.close()

	r.mu.Lock()
	if !r.up || r.gen != gen {
		r.mu.Unlock()
		return lis.Close()
	}
	r.server, r.streams = srv, streams
	r.notify()
	r.mu.Unlock()

	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	if err := srv.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("fakecri: serve: %w", err)
	}
	return nil
}

// end kills what runs and removes what Run and New made.
func (r *Runtime) end() {
	r.mu.Lock()
	r.server, r.over = nil, true
	for _, c := range r.containers {
		if c.kill != nil {
			c.kill()
		}
	}
	r.notify()
	r.mu.Unlock()
	r.processes.Wait() // they write files
	if r.ownDir != "" {
		os.RemoveAll(r.ownDir) //nolint:errcheck // a leftover in the temporary directory harms nothing
	}
}

// Down breaks all connections and refuses new ones. State and processes live
// on; calls under way lose their answer.
func (r *Runtime) Down() { r.setUp(false) }

// Up serves again after Down.
func (r *Runtime) Up() { r.setUp(true) }

// Restart is Down followed by Up: every stream ends, nothing else changes.
func (r *Runtime) Restart() {
	r.setUp(false)
	r.setUp(true)
}

func (r *Runtime) setUp(up bool) {
	r.mu.Lock()
	if r.up == up {
		r.mu.Unlock()
		return
	}
	r.up = up
	r.gen++
	srv, streams := r.server, r.streams
	r.server, r.streams = nil, nil
	select {
	case r.cycle <- struct{}{}:
	default:
	}
	r.notify()
	r.mu.Unlock()
	if srv != nil {
		srv.Stop() // not under the lock: handlers on their way out need it
		streams.close()
	}
}

// now is the runtime's own idea of the time.
func (r *Runtime) now() time.Time { return r.cfg.Clock.Now().Add(time.Duration(r.skew.Load())) }

// notify tells all waiters that something changed. The caller holds mu.
func (r *Runtime) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed is closed at the next change of state and at the next end of a call.
func (r *Runtime) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// WaitFor waits until cond holds; it is asked again after every change. The
// error is that of ctx.
func (r *Runtime) WaitFor(ctx context.Context, cond func() bool) error {
	for {
		changed := r.Changed()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("fakecri: wait: %w", context.Cause(ctx))
		}
	}
}
