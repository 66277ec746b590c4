package nodeapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sextant-node/sextant/pkg/pod"
)

const (
	// defaultIdle is streamingConnectionIdleTimeout's own default.
	defaultIdle = 4 * time.Hour
	// prepareTimeout bounds how long the runtime may take to name a URL, a
	// podworker that is just coming back included.
	prepareTimeout = 15 * time.Second
)

// exec answers /exec: a command in a container.
func (s *Service) exec(w http.ResponseWriter, r *http.Request) {
	command := r.URL.Query()["command"]
	s.command(w, r, "exec", command, func(ctx context.Context, _ *target, id string, o *remotecommand.Options) (string, error) {
		resp, err := s.runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: command, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		}, grpc.WaitForReady(true))
		return resp.GetUrl(), err
	})
}

// attach answers /attach: a container's own streams, with a terminal if the
// container has one.
func (s *Service) attach(w http.ResponseWriter, r *http.Request) {
	s.command(w, r, "attach", nil, func(ctx context.Context, t *target, id string, o *remotecommand.Options) (string, error) {
		c, ok := containerOf(t.pod, t.container)
		if !ok {
			return "", &refusal{http.StatusInternalServerError, t.missing}
		}
		resp, err := s.runtime.Attach(ctx, &runtimeapi.AttachRequest{
			ContainerId: id, Tty: c.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		}, grpc.WaitForReady(true))
		return resp.GetUrl(), err
	})
}

// command is what exec and attach share; prepare asks the runtime for a URL.
func (s *Service) command(w http.ResponseWriter, r *http.Request, kind string, command []string, prepare func(context.Context, *target, string, *remotecommand.Options) (string, error)) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, err.Error()})
		return
	}
	p, err := s.find(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	if err != nil {
		refuse(w, err)
		return
	}
	t := &target{pod: p, container: r.PathValue("container")}
	if t.missing = fmt.Sprintf("container not found (%q)", t.container); kind == "attach" {
		t.missing = fmt.Sprintf("container %s not found in pod %s", t.container, pod.FullName(p))
	}
	location, err := s.locate(r.Context(), t, r, func(ctx context.Context, id string) (string, error) {
		return prepare(ctx, t, id, options)
	})
	if err != nil {
		refuse(w, err)
		return
	}
	translated := s.webSockets() && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r)
	s.carry(w, r, session{kind: kind, target: t, command: command, webSocket: translated}, func() http.Handler {
		if !translated {
			return upgrade(location)
		}
		return translator.NewStreamTranslatorHandler(location, nil, 0, translator.Options{
			Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY,
		})
	})
}

// portForward answers /portForward: connections to ports of a pod.
func (s *Service) portForward(w http.ResponseWriter, r *http.Request) {
	tunnelled := s.webSockets() && wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	options := &portforward.V4Options{}
	if !tunnelled {
		var err error
		if options, err = portforward.NewV4Options(r); err != nil {
			refuse(w, &refusal{http.StatusBadRequest, err.Error()})
			return
		}
	}
	p, err := s.find(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	if err != nil {
		refuse(w, err)
		return
	}
	t := &target{pod: p, missing: fmt.Sprintf("pod not found (%q)", pod.FullName(p))}
	location, err := s.locate(r.Context(), t, r, func(ctx context.Context, id string) (string, error) {
		resp, err := s.runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: options.Ports}, grpc.WaitForReady(true))
		return resp.GetUrl(), err
	})
	if err != nil {
		refuse(w, err)
		return
	}
	s.carry(w, r, session{kind: "portforward", target: t, webSocket: tunnelled}, func() http.Handler {
		if tunnelled {
			return translator.NewTunnelingHandler(upgrade(location))
		}
		return upgrade(location)
	})
}

// locate asks the runtime where it serves a stream. A request that cannot become
// one is not worth a place in the runtime's table; the kubelet's answer to it,
// status included, is what its proxy says.
func (s *Service) locate(ctx context.Context, t *target, r *http.Request, prepare func(ctx context.Context, id string) (string, error)) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	var raw string
	err := s.resolve(ctx, t, func(id string) (err error) {
		if !httpstream.IsUpgradeRequest(r) {
			return errUpgrade
		}
		raw, err = prepare(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(raw)
}

// upgrade passes a connection on to where the runtime serves it.
func upgrade(location *url.URL) http.Handler {
	return proxy.NewUpgradeAwareHandler(location, nil, false, true, failed{})
}

// failed answers for a runtime's streaming server that does not.
type failed struct{}

// Error implements proxy.ErrorResponder.
func (failed) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// session is one stream of a caller.
type session struct {
	kind      string
	target    *target
	command   []string
	webSocket bool // translated or tunnelled here
}

// carry runs a session to its end and tells who had it. From here on it needs
// this process and the runtime's streaming server, and nobody else.
func (s *Service) carry(w http.ResponseWriter, r *http.Request, what session, handler func() http.Handler) {
	if what.webSocket {
		s.streams.webSockets.WithLabelValues(what.kind).Inc()
	}
	s.streams.open.WithLabelValues(what.kind).Inc()
	defer s.streams.open.WithLabelValues(what.kind).Dec()
	ended := s.record(r, what)

	ctx, done := context.WithCancel(r.Context())
	defer done()
	// The library's news is about connections that end, as all do.
	ctx = klog.NewContext(ctx, logr.Discard())
	on := r.Clone(ctx)
	on.Header.Del("Authorization") // the caller's credentials are not the runtime's business
	on.Header.Del("Cookie")
	taken := &takeover{ResponseWriter: w, idle: s.streamIdle(), done: done}
	defer func() { ended(taken.taken.Load()) }()
	handler().ServeHTTP(taken, on)
}

// record writes down who does what, and how long it lasted.
func (s *Service) record(r *http.Request, what session) (ended func(streamed bool)) {
	user := callerOf(r.Context())
	about := []any{
		"kind", what.kind, "user", user.Name, "groups", user.Groups, "remote", r.RemoteAddr,
		"pod", what.target.pod.Namespace + "/" + what.target.pod.Name, "uid", string(what.target.pod.UID),
	}
	if what.target.container != "" {
		about = append(about, "container", what.target.container)
	}
	if what.command != nil {
		about = append(about, "command", what.command)
	}
	if what.kind == "portforward" {
		if ports := r.URL.Query()["port"]; len(ports) > 0 {
			about = append(about, "ports", strings.Join(ports, ","))
		}
	}
	if id := r.Header.Get("Audit-ID"); id != "" {
		about = append(about, "audit", id)
	}
	s.kit.Log.Info("session begins", about...)
	began := time.Now()
	return func(streamed bool) {
		s.kit.Log.Info("session ended", append(about, "streamed", streamed, "took", time.Since(began).String())...)
	}
}

// webSockets: clients' WebSockets are spoken here and not by the runtime.
func (s *Service) webSockets() bool {
	conf := s.current()
	return conf == nil || conf.Gate("ExtendWebSocketsToKubelet")
}

func (s *Service) streamIdle() time.Duration {
	if conf := s.current(); conf != nil && conf.Kubelet.StreamingConnectionIdleTimeout.Duration > 0 {
		return conf.Kubelet.StreamingConnectionIdleTimeout.Duration
	}
	return defaultIdle
}
