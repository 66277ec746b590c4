// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/sextant-node/sextant/test/fakecri/internal/shell"
)

// streams is the streaming server, which is a real one (the library's, that
// runtimes have). Like a runtime's it ends with the runtime, its sessions too.
type streams struct {
	streaming.Server
	http *http.Server
	once sync.Once

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// streamCreation is how long a client may take to open its streams; 30 s in a
// runtime, for which no test wants to wait.
const streamCreation = 5 * time.Second

func (r *Runtime) serveStreams() (*streams, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fakecri: streaming: %w", err)
	}
	config := streaming.DefaultConfig
	config.StreamCreationTimeout = streamCreation
	config.BaseURL = &url.URL{Scheme: "http", Host: lis.Addr().String()}
	server, err := streaming.NewServer(config, streamRuntime{r})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fakecri: streaming: %w", err), lis.Close())
	}
	s := &streams{Server: server, conns: map[net.Conn]bool{}}
	s.http = &http.Server{Handler: server, ConnState: s.track}
	go s.http.Serve(lis) //nolint:errcheck // it ends when it is closed
	return s, nil
}

// track keeps the connections that sessions have taken over: the HTTP server
// forgets them.
func (s *streams) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateHijacked:
		s.conns[conn] = true
	case http.StateClosed:
		delete(s.conns, conn)
	}
}

func (s *streams) close() {
	s.once.Do(func() {
		_ = s.http.Close() // nobody is told
		s.mu.Lock()
		defer s.mu.Unlock()
		for conn := range s.conns {
			_ = conn.Close() // nor here
		}
	})
}

func (s *runtimeServer) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	server, err := s.streamInto(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return server.GetExec(req)
}

func (s *runtimeServer) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	server, err := s.streamInto(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return server.GetAttach(req)
}

func (s *runtimeServer) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, ok := byID(r.sandboxes, req.GetPodSandboxId())
	if !ok {
		return nil, notFound("failed to find sandbox %q", req.GetPodSandboxId())
	}
	if sb.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, failure("sandbox container is not running")
	}
	if r.streams == nil {
		return nil, failure("the runtime is going down")
	}
	return r.streams.GetPortForward(req)
}

// streamInto is the streaming server, for a container that runs.
func (s *runtimeServer) streamInto(id string) (*streams, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if _, err := s.r.runs(id); err != nil {
		return nil, err
	}
	if s.r.streams == nil {
		return nil, failure("the runtime is going down")
	}
	return s.r.streams, nil
}

// runs finds a running container. The caller holds mu.
func (r *Runtime) runs(id string) (*container, error) {
	c, ok := byID(r.containers, id)
	if !ok {
		return nil, notFound("failed to find container %q in store", id)
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, failure("container is in %s state", c.state)
	}
	return c, nil
}

// streamRuntime is what the streaming server runs sessions in.
type streamRuntime struct{ r *Runtime }

// Exec implements streaming.Runtime.
func (s streamRuntime) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errw io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	r := s.r
	r.mu.Lock()
	c, err := r.runs(id)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	if len(cmd) == 0 {
		r.mu.Unlock()
		return errors.New("OCI runtime exec failed: exec failed: args must not be empty: unknown")
	}
	script, args, err := program(c.image, cmd, nil)
	if err != nil {
		r.mu.Unlock()
		return startError("exec", cmd[0])
	}
	p := r.process(c, orDiscard(out), orDiscard(errw))
	if tty {
		p.Err = p.Out
		p.Size = sizes(resize)
	}
	p.Args, p.In = args, in
	r.busy++
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	finished := make(chan shell.Exit, 1)
	go func() {
		exit := p.Run(ctx, script)
		r.mu.Lock()
		r.busy--
		r.notify()
		r.mu.Unlock()
		finished <- exit
	}()
	exit := shell.Exit{Code: 137}
	select {
	case exit = <-finished:
	case <-c.done:
		cancel()
		<-finished
	}
	if exit.Code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("error executing command %v, exit code %d", cmd, exit.Code), Code: int(exit.Code)}
	}
	return nil
}

// Attach implements streaming.Runtime.
func (s streamRuntime) Attach(ctx context.Context, id string, in io.Reader, out, errw io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	s.r.mu.Lock()
	c, err := s.r.runs(id)
	s.r.mu.Unlock()
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	var once sync.Once
	leave := func() { once.Do(func() { close(gone) }) }
	if out != nil {
		defer c.out.add(out, leave)()
	}
	if errw != nil {
		defer c.err.add(errw, leave)()
	}
	if in != nil && c.stdin != nil {
		go func() {
			_, err := io.Copy(c.stdin, in)
			if c.config.GetStdinOnce() {
				_ = c.stdin.Close() // never fails
			}
			if err != nil {
				leave()
			}
		}()
	}
	select {
	case <-c.done:
	case <-gone:
	case <-ctx.Done():
	}
	return nil
}

// PortForward implements streaming.Runtime.
func (s streamRuntime) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close() //nolint:errcheck // the session's end
	s.r.mu.Lock()
	_, ok := byID(s.r.sandboxes, id)
	serve := s.r.cfg.Ports[port]
	s.r.mu.Unlock()
	if !ok {
		return notFound("failed to find sandbox %q", id)
	}
	if serve == nil {
		return fmt.Errorf("failed to execute portforward in network namespace: failed to connect to localhost:%d inside namespace %q: connection refused", port, id)
	}
	serve(stream)
	return nil
}

// fanout is a container's output: its log and those who are attached.
type fanout struct {
	log io.Writer

	mu   sync.Mutex
	to   map[int]member
	next int
}

type member struct {
	io.Writer
	leave func()
}

func (f *fanout) add(w io.Writer, leave func()) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to == nil {
		f.to = map[int]member{}
	}
	key := f.next
	f.next++
	f.to[key] = member{w, leave}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.to, key)
	}
}

func (f *fanout) Write(p []byte) (int, error) {
	f.mu.Lock()
	for key, m := range f.to {
		if _, err := m.Write(p); err != nil {
			delete(f.to, key)
			m.leave()
		}
	}
	f.mu.Unlock()
	return f.log.Write(p)
}

func orDiscard(w io.WriteCloser) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// sizes waits for the first size, and knows the newest.
func sizes(resize <-chan remotecommand.TerminalSize) func(context.Context) (rows, columns uint16) {
	var last remotecommand.TerminalSize
	return func(ctx context.Context) (rows, columns uint16) {
		for last.Height == 0 {
			select {
			case size, ok := <-resize:
				if !ok {
					return 0, 0
				}
				last = size
			case <-ctx.Done():
				return 0, 0
			}
		}
		return last.Height, last.Width
	}
}
