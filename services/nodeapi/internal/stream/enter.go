// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	translator "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/listen"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

// Server serves the requests, each by one call to the runtime or to podworker. It is safe
// for concurrent use.
type Server struct {
	*sessions
	runtime runtimeapi.RuntimeServiceClient
	worker  podworkerv1.PodWorkerServiceClient
}

// exec runs a command in a container.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	return s.command(w, r, "exec", func(ctx context.Context, n *session, id string, o *remotecommand.Options) (string, error) {
		resp, err := s.runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: n.command, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		}, grpc.WaitForReady(true))
		return resp.GetUrl(), err
	})
}

// attach connects to a container's own streams, with a terminal if the container has one.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) error {
	return s.command(w, r, "attach", func(ctx context.Context, n *session, id string, o *remotecommand.Options) (string, error) {
		c, _ := pod.FindContainer(n.Pod, n.Container)
		if c == nil {
			return "", reply.Errorf(http.StatusInternalServerError, "%s", n.Missing)
		}
		resp, err := s.runtime.Attach(ctx, &runtimeapi.AttachRequest{
			ContainerId: id, Tty: c.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		}, grpc.WaitForReady(true))
		return resp.GetUrl(), err
	})
}

func (s *Server) command(w http.ResponseWriter, r *http.Request, kind string, prepare func(context.Context, *session, string, *remotecommand.Options) (string, error)) error {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		return reply.Errorf(http.StatusBadRequest, "%s", err)
	}
	n, err := s.of(r, kind)
	if err != nil {
		return err
	}
	n.webSocket = s.webSockets() && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r)
	return s.carry(w, r, n,
		func(ctx context.Context, id string) (string, error) { return prepare(ctx, n, id, options) },
		func(location *url.URL) http.Handler {
			return translator.NewStreamTranslatorHandler(location, nil, 0, translator.Options{
				Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY,
			})
		})
}

// portForward connects to ports of a pod.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) error {
	tunnelled := s.webSockets() && wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	options := &portforward.V4Options{}
	if !tunnelled {
		var err error
		if options, err = portforward.NewV4Options(r); err != nil {
			return reply.Errorf(http.StatusBadRequest, "%s", err)
		}
	}
	n, err := s.of(r, "portforward")
	if err != nil {
		return err
	}
	n.webSocket = tunnelled
	return s.carry(w, r, n, func(ctx context.Context, id string) (string, error) {
		resp, err := s.runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: options.Ports}, grpc.WaitForReady(true))
		return resp.GetUrl(), err
	}, func(location *url.URL) http.Handler { return translator.NewTunnelingHandler(upgrade(location)) })
}

// run answers with the output of a command, standard error last. The command is cut at
// single spaces; if it fails the answer is a 500 with its standard error (the kubelet's
// rules).
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	n, err := s.of(r, "run")
	if err != nil {
		return err
	}
	ended := s.begin(r, n)
	var output []byte
	err = s.pods.Do(r.Context(), n.Target, func(id string) error {
		resp, err := s.runtime.ExecSync(r.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: n.command}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if code := resp.GetExitCode(); code != 0 {
			return reply.Errorf(http.StatusInternalServerError, "command '%s' exited with %d: %s", strings.Join(n.command, " "), code, resp.GetStderr())
		}
		output = append(resp.GetStdout(), resp.GetStderr()...)
		return nil
	})
	ended(false)
	if err != nil {
		return reply.Errorf(http.StatusInternalServerError, "%s", err)
	}
	w.Header().Set("Content-Type", "application/json") // whatever it is, as the kubelet
	_, _ = w.Write(output)                             // the caller may have left
	return nil
}

// checkpoint has the runtime write an archive of a container, by way of podworker, and
// answers with its path.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) error {
	if conf := s.conf(); conf != nil && !conf.Gate("ContainerCheckpoint") {
		http.NotFound(w, r)
		return nil
	}
	n, err := s.of(r, "checkpoint")
	if err != nil {
		return err
	}
	if c, _ := pod.FindContainer(n.Pod, n.Container); c == nil {
		return reply.Errorf(http.StatusNotFound, "container %v does not exist", n.Container)
	}
	timeout, err := lastTimeout(r)
	if err != nil {
		return err
	}
	ended := s.begin(r, n)
	resp, err := s.worker.Checkpoint(r.Context(), &podworkerv1.CheckpointRequest{
		Uid: string(n.Pod.UID), Container: n.Container, Timeout: durationpb.New(timeout),
	}, grpc.WaitForReady(true))
	ended(false)
	switch {
	case err == nil:
		reply.JSON(w, map[string][]string{"items": {resp.GetLocation()}})
	case !errors.Is(r.Context().Err(), context.Canceled):
		return reply.Errorf(http.StatusInternalServerError, "checkpointing of %v/%v/%v failed (%v)", n.Pod.Namespace, n.Pod.Name, n.Container, err)
	}
	return nil
}

// lastTimeout is the last of the timeouts in a query, in seconds; 0 without one.
func lastTimeout(r *http.Request) (time.Duration, error) {
	all := r.URL.Query()["timeout"]
	if len(all) == 0 {
		return 0, nil
	}
	seconds, err := strconv.ParseInt(all[len(all)-1], 10, 64)
	if err != nil {
		return 0, reply.Errorf(http.StatusNotFound, "cannot parse value of timeout parameter")
	}
	return min(pod.Seconds(max(seconds, 0)), listen.StreamTimeout), nil
}
