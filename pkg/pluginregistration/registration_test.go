// SPDX-License-Identifier: Apache-2.0

package pluginregistration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// plugin is one behind a socket.
type plugin struct {
	registration.UnimplementedRegistrationServer
	info     *registration.PluginInfo
	statuses chan *registration.RegistrationStatus
	server   *grpc.Server
}

func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	p.statuses <- s
	return &registration.RegistrationStatusResponse{}, nil
}

func serve(t *testing.T, path string, info *registration.PluginInfo) *plugin {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{info: info, statuses: make(chan *registration.RegistrationStatus, 100), server: grpc.NewServer()}
	registration.RegisterRegistrationServer(p.server, p)
	go p.server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(p.server.Stop)
	return p
}

// status waits for what the plugin is told.
func (p *plugin) status(t *testing.T) *registration.RegistrationStatus {
	t.Helper()
	select {
	case s := <-p.statuses:
		return s
	case <-time.After(time.Minute):
		t.Fatal("the plugin is told nothing")
		return nil
	}
}

// owner takes plugins in.
type owner struct {
	t       *testing.T
	came    chan Plugin
	went    chan Plugin
	scanned chan []string
	stop    func()
}

func run(t *testing.T, dir string) *owner {
	t.Helper()
	o := &owner{t: t, came: make(chan Plugin, 100), went: make(chan Plugin, 100), scanned: make(chan []string, 1)}
	var mu sync.Mutex
	refused := map[string]bool{}
	r := New(Config{
		Dir: dir, Refuses: true, Types: map[string]Type{registration.CSIPlugin: {
			Register: func(_ context.Context, p Plugin) error {
				mu.Lock()
				defer mu.Unlock()
				if p.Name == "twice" && !refused[p.Name] {
					refused[p.Name] = true
					return errors.New("not yet")
				}
				o.came <- p
				return nil
			},
			Unregister: func(p Plugin) { o.went <- p },
		}},
		Scanned: func(found []string) { o.scanned <- found },
		Log:     slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	o.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(o.stop)
	return o
}

func take[T any](t *testing.T, what string, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("never: %s", what)
		panic("unreachable")
	}
}

func TestAPluginComesAndGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	o := run(t, dir)
	if found := take(t, "the first look", o.scanned); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	path := filepath.Join(dir, "a-reg.sock")
	info := &registration.PluginInfo{Type: registration.CSIPlugin, Name: "a", Endpoint: "/x/a.sock", SupportedVersions: []string{"1.0.0"}}
	a := serve(t, path, info)
	if p := take(t, "the plugin", o.came); p.Name != "a" || p.Endpoint != "/x/a.sock" || p.Versions[0] != "1.0.0" || p.Socket != path {
		t.Errorf("%+v", p)
	}
	if s := a.status(t); !s.GetPluginRegistered() || s.GetError() != "" {
		t.Errorf("told %v", s)
	}
	// A new socket of the same name is a new start of the plugin.
	a.server.Stop()
	again := serve(t, path, info)
	take(t, "the plugin's second start", o.came)
	again.status(t)
	for len(o.went) > 0 {
		<-o.went // between the two there may have been no socket
	}
	again.server.Stop() // which removes the socket
	if p := take(t, "the plugin's end", o.went); p.Name != "a" {
		t.Errorf("%+v", p)
	}
}

// TestAPluginWhoseSocketIsMadeAgain is let go with the new socket, whether or not anybody has
// answered there, and when another plugin does.
func TestAPluginWhoseSocketIsMadeAgain(t *testing.T) {
	dir, apart := t.TempDir(), t.TempDir()
	o := run(t, dir)
	path, fresh := filepath.Join(dir, "reg.sock"), filepath.Join(apart, "reg.sock")
	replace := func() {
		if err := os.Rename(fresh, path); err != nil {
			t.Fatal(err)
		}
	}
	a := serve(t, path, &registration.PluginInfo{Type: registration.CSIPlugin, Name: "a"})
	take(t, "the plugin", o.came)
	a.status(t)
	b := serve(t, fresh, &registration.PluginInfo{Type: registration.CSIPlugin, Name: "b"})
	replace()
	if p := take(t, "the other plugin", o.came); p.Name != "b" {
		t.Errorf("%+v", p)
	}
	if p := take(t, "the first one's end", o.went); p.Name != "a" {
		t.Errorf("%+v", p)
	}
	b.status(t)
	silent, err := net.Listen("unix", fresh)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	replace()
	asked, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { asked.Close() })
	if len(o.went) != 0 {
		t.Error("let go while it may be starting again")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if p := take(t, "the other one's end", o.went); p.Name != "b" {
		t.Errorf("%+v", p)
	}
}

// alone says that this is the process without watches of TestNoWatchesLeft.
const alone = "PLUGINREGISTRATION_TEST_DIR"

// TestNoWatchesLeft: plugins register where the kernel has no inotify watches left, and
// where a folder beside theirs cannot be read; and one stays registered whose folder cannot
// be read any more. The limit and the owner are those of a user namespace.
func TestNoWatchesLeft(t *testing.T) {
	if dir := os.Getenv(alone); dir != "" {
		noWatchesLeft(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a folder to another user")
	}
	const stranger = 12345 // has no name in the namespace: not even its root reads what it owns
	dir := t.TempDir()
	before, later := filepath.Join(dir, "before"), filepath.Join(dir, "later")
	for _, sub := range []string{before, later} {
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(before, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoWatchesLeft$")
	cmd.Env = append(os.Environ(), alone+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}},
	}
	var out strings.Builder
	cmd.Stderr = &out
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(io.TeeReader(from, &out))
	if lines.Scan() && lines.Text() == "registered" {
		if err := errors.Join(os.Chown(later, stranger, stranger), to.Close()); err != nil {
			t.Error(err)
		}
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func noWatchesLeft(t *testing.T, dir string) {
	if err := os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	info := func(name string) *registration.PluginInfo {
		return &registration.PluginInfo{Type: registration.CSIPlugin, Name: name}
	}
	later := filepath.Join(dir, "later")
	serve(t, filepath.Join(later, "a.sock"), info("a"))
	o := run(t, dir)
	take(t, "a plugin beside a folder that cannot be read", o.came)
	fmt.Println("registered")
	if _, err := io.ReadAll(os.Stdin); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(later); !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("the folder can be read: %v", err)
	}
	serve(t, filepath.Join(dir, "b.sock"), info("b"))
	if p := take(t, "a plugin that no watch tells of", o.came); p.Name != "b" {
		t.Errorf("%+v", p)
	}
	if len(o.went) > 0 {
		t.Errorf("let go, as its folder cannot be read: %+v", <-o.went)
	}
}

func TestARestartAsksAnew(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "below")
	if err := os.Mkdir(sub, 0o750); err != nil {
		t.Fatal(err)
	}
	a := serve(t, filepath.Join(sub, "a.sock"), &registration.PluginInfo{Type: registration.CSIPlugin, Name: "a", SupportedVersions: []string{"1.0.0"}})
	first := run(t, dir)
	if p := take(t, "the plugin", first.came); p.Endpoint != filepath.Join(sub, "a.sock") {
		t.Errorf("endpoint %s", p.Endpoint)
	}
	a.status(t)
	if found := take(t, "the first look", first.scanned); len(found) != 1 {
		t.Errorf("found %v", found)
	}
	first.stop()
	if len(first.went) != 0 {
		t.Error("the end of the registry unregistered the plugin")
	}
	second := run(t, dir)
	take(t, "the plugin, after a restart", second.came)
	a.status(t)
}

func TestARefusedPluginIsToldAndAskedAgain(t *testing.T) {
	dir := t.TempDir()
	o := run(t, dir)
	p := serve(t, filepath.Join(dir, "twice.sock"), &registration.PluginInfo{Type: registration.CSIPlugin, Name: "twice", SupportedVersions: []string{"1.0.0"}})
	if s := p.status(t); s.GetPluginRegistered() || s.GetError() != "RegisterPlugin error -- plugin registration failed with err: not yet" {
		t.Errorf("told %v", s)
	}
	take(t, "the plugin", o.came)
	if s := p.status(t); !s.GetPluginRegistered() {
		t.Errorf("told %v", s)
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	gpu := serve(t, filepath.Join(dir, "gpu.sock"), &registration.PluginInfo{Type: registration.DRAPlugin, Name: "gpu"})
	if err := os.WriteFile(filepath.Join(dir, "readme"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// One that takes connections and never answers.
	mute, err := net.Listen("unix", filepath.Join(dir, "mute.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	o := run(t, dir)
	serve(t, filepath.Join(dir, "a.sock"), &registration.PluginInfo{Type: registration.CSIPlugin, Name: "a"})
	if p := take(t, "the plugin", o.came); p.Name != "a" {
		t.Errorf("%+v", p)
	}
	if len(gpu.statuses) != 0 || len(o.came) != 0 {
		t.Error("a plugin of another type was dealt with")
	}
}

func TestATypeThatKubernetesDoesNotHaveIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "odd.sock")
	p := serve(t, path, &registration.PluginInfo{Type: "Odd", Name: "odd"})
	o := run(t, dir)
	if s := p.status(t); s.GetPluginRegistered() || s.GetError() != `no handler registered for plugin type: Odd at socket `+path {
		t.Errorf("received %v", s)
	}
	if len(o.came) != 0 {
		t.Error("it was registered")
	}
}
