// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/nodeapi"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/standin"
)

// streamRig is a rig with a runtime, whose pod ns/p (UID "p", mirror "m") has a
// running container "c" that repeats its standard input.
type streamRig struct {
	*rig
	log       *logBuffer
	runtime   *fakecri.Runtime
	cri       runtimeapi.RuntimeServiceClient
	records   *feed.Owner[*plegv1.PodRecord]
	stopPleg  func()
	sandbox   string
	container string
}

// echoPort answers with what it was sent, once the sender is done.
const echoPort = 7

func echo(stream io.ReadWriteCloser) {
	data, err := io.ReadAll(stream)
	if err != nil {
		return // the sender went away
	}
	_, _ = stream.Write(data) // the same
}

// logBuffer is a log that a test reads.
type logBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func newStreamRig(t *testing.T, cfg nodeapi.Config, edit func(*kubeletconfig.Config)) *streamRig {
	t.Helper()
	in := standin.New(t)
	r := &streamRig{log: &logBuffer{}}
	in.Logger = slog.New(slog.NewJSONHandler(r.log, nil))
	cfg.NodeName = "n1"
	r.rig = newRigOf(t, in, cfg, edit)
	r.reviews.set(func(v *reviews) {
		v.allow["alice create proxy"] = true
		v.allow["alice create checkpoint"] = true
		v.allow["alice get pods"] = true
	})
	if err := os.MkdirAll(filepath.Dir(r.Paths.Broker()), 0o755); err != nil {
		t.Fatal(err)
	}
	r.runtime = fakecri.Start(t, fakecri.Config{
		Socket: r.Paths.Broker(), Ports: map[int32]func(io.ReadWriteCloser){echoPort: echo},
		Images: []fakecri.Image{{Ref: "fake/shell"}},
	})
	r.cri = runtimeapi.NewRuntimeServiceClient(r.runtime.Conn(t))
	pleg := r.Kit(house.Pleg)
	r.records = service.Owner(pleg, house.PlegPods)
	r.stopPleg = r.Start(pleg)

	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Stdin: true}, {Name: "down"}}},
	}
	mirror := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "m"}}
	standin.Set(r.House, r.pods, "p", &configv1.DesiredPod{Pod: marshal(t, p), Mirror: marshal(t, mirror), Source: "file"})
	sandbox, err := r.cri.RunPodSandbox(r.House.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "ns", Name: "p", Uid: "p"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.sandbox = sandbox.GetPodSandboxId()
	r.container = r.start(0)
	r.observe()
	r.Eventually("the pod is known", func() bool { return r.do(who{token: "good"}, "POST", "/exec/ns/p/c?output=1").code != 404 })
	return r
}

func marshal(t *testing.T, p *v1.Pod) []byte {
	t.Helper()
	data, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// start runs the container, which repeats its standard input.
func (r *streamRig) start(attempt uint32) (id string) {
	r.Helper()
	created, err := r.cri.CreateContainer(r.House.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: r.sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: "fake/shell"}, Command: []string{"cat"}, Stdin: true,
		},
	})
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.cri.StartContainer(r.House.Context(), &runtimeapi.StartContainerRequest{ContainerId: created.GetContainerId()}); err != nil {
		r.Fatal(err)
	}
	return created.GetContainerId()
}

// observe publishes what the runtime has of the pod now.
func (r *streamRig) observe() {
	r.Helper()
	record := &plegv1.PodRecord{Uid: "p", Namespace: "ns", Name: "p"}
	sandbox, err := r.cri.PodSandboxStatus(r.House.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: r.sandbox})
	if err != nil {
		r.Fatal(err)
	}
	status, err := r.cri.ContainerStatus(r.House.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: r.container})
	if err != nil {
		r.Fatal(err)
	}
	for list, message := range map[*[][]byte]proto.Message{&record.Sandboxes: sandbox.GetStatus(), &record.Containers: status.GetStatus()} {
		data, err := proto.Marshal(message)
		if err != nil {
			r.Fatal(err)
		}
		*list = append(*list, data)
	}
	standin.Set(r.House, r.records, "p", record)
}

// alice is the client's part: the user of the token "good".
func (r *streamRig) alice() *rest.Config {
	return &rest.Config{Host: "https://" + address(r.port), BearerToken: "good", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func (r *streamRig) url(path string) *url.URL {
	r.Helper()
	u, err := url.Parse("https://" + address(r.port) + path)
	if err != nil {
		r.Fatal(err)
	}
	return u
}

// transports are the ways to have a session.
var transports = []string{"SPDY", "WebSocket"}

// command runs a session of exec or attach to its end.
func (r *streamRig) command(transport, path string, options remotecommand.StreamOptions) error {
	r.Helper()
	var executor remotecommand.Executor
	var err error
	if transport == "SPDY" {
		executor, err = remotecommand.NewSPDYExecutor(r.alice(), http.MethodPost, r.url(path))
	} else {
		executor, err = remotecommand.NewWebSocketExecutor(r.alice(), http.MethodGet, r.url(path).String())
	}
	if err != nil {
		r.Fatal(err)
	}
	return executor.StreamWithContext(r.House.Context(), options)
}

// forward opens a port-forward session.
func (r *streamRig) forward(transport, path string) (httpstream.Connection, error) {
	r.Helper()
	if transport == "WebSocket" {
		dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(r.url(path), r.alice())
		if err != nil {
			r.Fatal(err)
		}
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		return conn, err
	}
	roundTripper, upgrader, err := spdy.RoundTripperFor(r.alice())
	if err != nil {
		r.Fatal(err)
	}
	conn, _, err := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, r.url(path)).Dial(portforward.PortForwardProtocolV1Name)
	return conn, err
}
