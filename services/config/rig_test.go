// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// machine is a node's files, and the service on it: in this process, or in one
// of its own that can be killed.
type machine struct {
	t   *testing.T
	dir string
	// flags of the kubelet besides --config and --hostname-override.
	flags []string

	client configv1.ConfigServiceClient
	puller feed.Puller
	node   nodev1.NodeServiceClient
	pods   *feed.Replica[*configv1.DesiredPod]
	stat   *feed.Replica[*configv1.Object]
	src    *feed.Replica[*configv1.Source]
	obj    *feed.Replica[*configv1.Object]
	sec    *feed.Replica[*configv1.Object]
	mir    *feed.Replica[*configv1.Object]
	conf   *feed.Replica[*configv1.KubeletConfig]
	ev     *feed.Replica[*eventv1.Event]
	news   chan struct{}
}

// newMachine makes a machine with a manifest folder and this configuration
// (fields of KubeletConfiguration).
func newMachine(t *testing.T, configuration string, flags ...string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "sx") // short: socket paths are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	m := &machine{t: t, dir: dir, flags: flags, news: make(chan struct{}, 1)}
	if err := os.Mkdir(m.path("manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.configure(configuration)
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) configure(fields string) {
	m.write("config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+fields)
}

// write replaces a file whole.
func (m *machine) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.path(".tmp"), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(m.path(".tmp"), m.path(name)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) remove(name string) {
	m.t.Helper()
	if err := os.Remove(m.path(name)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) paths() house.Paths { return house.Paths{Run: m.path("run"), State: m.path("state")} }

// build makes the service, not running.
func build(dir string, flags []string, log *slog.Logger) (*service.Kit, *Service, error) {
	kit, err := service.New(service.Options{
		Service: house.Config, Bus: service.BusOff, Log: log,
		Paths: house.Paths{Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state")},
	})
	if err != nil {
		return nil, nil, err
	}
	parsed, err := kubeletconfig.ParseFlags(append([]string{
		"--hostname-override=n1", "--config=" + filepath.Join(dir, "config.yaml"),
	}, flags...))
	if err != nil {
		return nil, nil, err
	}
	svc, err := New(Config{
		Watch: []string{filepath.Join(dir, "config.yaml")},
		Load: func() (*kubeletconfig.Config, []kubeletconfig.Warning, error) {
			host, err := kubeletconfig.Host()
			if err != nil {
				return nil, nil, err
			}
			return kubeletconfig.Load(parsed, host)
		},
	}, Deps{Kit: kit})
	return kit, svc, err
}

// start runs the service in this process; stop ends it.
func (m *machine) start() (stop func()) {
	m.t.Helper()
	kit, svc, err := build(m.dir, m.flags, slog.New(slog.DiscardHandler))
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- kit.Run(ctx) }()
	m.listen()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
		if err := svc.keeper.Close(); err != nil {
			m.t.Error(err)
		}
	}
	m.t.Cleanup(stop)
	return stop
}

// childEnv makes the test binary be the service; see TestMain.
const childEnv = "SEXTANT_CONFIG_TEST_CHILD"

// startProcess runs the service in a process of its own; kill is kill -9.
func (m *machine) startProcess() (kill func()) {
	m.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(append([]string{m.dir}, m.flags...), "\n"))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	killed := false
	kill = func() {
		if killed {
			return
		}
		killed = true
		if err := cmd.Process.Kill(); err != nil {
			m.t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			m.t.Error("the process ended by itself")
		}
	}
	m.t.Cleanup(kill)
	m.listen()
	return kill
}

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		words := strings.Split(child, "\n")
		kit, _, err := build(words[0], words[1:], slog.New(slog.DiscardHandler))
		if err == nil {
			err = kit.Run(context.Background())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// listen reads the feeds over the service's socket, once.
func (m *machine) listen() {
	if m.client != nil {
		return
	}
	m.t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: m.paths().Socket(house.Config)})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	m.client, m.node = configv1.NewConfigServiceClient(conn), nodev1.NewNodeServiceClient(conn)
	puller := feed.Remote{Client: feedv1.NewFeedServiceClient(conn)}
	m.puller = puller
	m.pods = replica(m, puller, house.ConfigPods)
	m.stat = replica(m, puller, house.ConfigStatuses)
	m.src = replica(m, puller, house.ConfigSources)
	m.obj = replica(m, puller, house.ConfigObjects)
	m.sec = replica(m, puller, house.ConfigSecrets)
	m.mir = replica(m, puller, house.ConfigMirrors)
	m.conf = replica(m, puller, house.ConfigKubelet)
	m.ev = replica(m, puller, house.ConfigEvents)
}

func replica[M proto.Message](m *machine, puller feed.Puller, f house.FeedOf[M]) *feed.Replica[M] {
	mir := feed.NewReplica(feed.ReplicaConfig{Feed: f.Name, Puller: puller, Poll: 20 * time.Millisecond}, feed.Decoder(feed.Whole[M]))
	mir.Watch(func([]string) { m.tell() })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = mir.Run(ctx); close(done) }() // it returns nil
	m.t.Cleanup(func() { cancel(); <-done })
	return mir
}

func (m *machine) tell() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// until waits for something to become true, looking at each change of a feed.
func (m *machine) until(what string, ok func() bool) {
	m.t.Helper()
	limit := time.After(time.Minute)
	for !ok() {
		select {
		case <-m.news:
		case <-time.After(50 * time.Millisecond): // health and files are no feeds
		case <-limit:
			m.t.Fatalf("not %s: pods %s; sources %v; health %s", what, m.names(), m.src.Items(), m.health())
		}
	}
}

// names are the desired pods by name and source, and whether that is all.
func (m *machine) names() string {
	var all []string
	for _, d := range m.pods.Items() {
		p := m.pod(d)
		text := p.Namespace + "/" + p.Name
		if len(d.GetMirror()) > 0 {
			text += "+mirror"
		}
		all = append(all, text)
	}
	return sortedWords(all, m.pods.Complete())
}

// wants waits for exactly these pods, complete or (with "…") not.
func (m *machine) wants(names ...string) {
	m.t.Helper()
	complete := true
	if n := len(names); n > 0 && names[n-1] == "…" {
		names, complete = names[:n-1], false
	}
	want := sortedWords(names, complete)
	m.until("pods "+want, func() bool { return m.pods.Synced() && m.names() == want })
}

func (m *machine) pod(d *configv1.DesiredPod) *v1.Pod {
	m.t.Helper()
	p := &v1.Pod{}
	if err := p.Unmarshal(d.GetPod()); err != nil {
		m.t.Fatal(err)
	}
	return p
}

// uid of the desired pod of a name.
func (m *machine) uid(name string) string {
	m.t.Helper()
	for uid, d := range m.pods.Items() {
		if m.pod(d).Name == name {
			return uid
		}
	}
	m.t.Fatalf("no pod %s among %s", name, m.names())
	return ""
}

func (m *machine) health() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hello, err := m.node.Hello(ctx, &nodev1.HelloRequest{})
	if err != nil {
		return err.Error()
	}
	return hello.GetHealth().String() + " " + hello.GetHealthReason()
}

// events of a reason so far.
func (m *machine) events(reason string) (all []*eventv1.Event) {
	for _, e := range m.ev.Items() {
		if e.GetReason() == reason {
			all = append(all, e)
		}
	}
	return all
}

// written waits until what was published is on disk.
func (m *machine) written() {
	m.t.Helper()
	m.until("written", func() bool {
		return strings.Contains(m.metrics(), "sextant_config_unwritten_records 0\n")
	})
}

func (m *machine) metrics() string {
	m.t.Helper()
	socket := m.paths().DebugSocket(house.Config)
	m.until("serving metrics", func() bool { // the feeds may answer before
		_, err := os.Stat(socket)
		return err == nil
	})
	resp, err := debugClient(socket).Get("http://config/metrics")
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(body)
}
