// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// runtimeSocket sees that only podworker is connected to the container runtime,
// while pods come and go.
func runtimeSocket(e *env) {
	socket := strings.TrimPrefix(e.n.Runtime.Endpoint(), "unix://")
	podworker, err := e.n.hello(e.Context(), house.PodWorker)
	if err != nil {
		e.Fatal(err)
	}
	met := false
	look := func(context.Context) error {
		for _, peer := range harness.ConnectedTo(e, socket) {
			if peer.PID == os.Getpid() || strings.Contains(peer.String(), "/ctr --address") {
				continue // another test of ours looks at the runtime itself, or gives it an image
			}
			if peer.PID != int(podworker.GetPid()) {
				return fmt.Errorf("%s has the runtime's socket open; podworker is %d", peer, podworker.GetPid())
			}
			met = true
		}
		return nil
	}
	e.create(e.pod("web"))
	harness.Consistently(e, 3*time.Second, "connections to the runtime", look)
	e.awaitRunning("web", usual)
	harness.Consistently(e, time.Second, "connections to the runtime", look)
	if !met {
		e.Error("not even podworker is connected: the test sees nothing")
	}
}

// documentedRights reads the capabilities of each service from the owner table
// of the architecture page.
func documentedRights(e *env) map[house.Service]uint64 {
	e.Helper()
	page, err := os.ReadFile(filepath.Join(harness.The(e).Source, "docs", "architecture.md"))
	if err != nil {
		e.Fatal(err)
	}
	bits := map[string]uint64{
		"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
		"CAP_FOWNER": unix.CAP_FOWNER, "CAP_FSETID": unix.CAP_FSETID,
		"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN,
	}
	rights := map[house.Service]uint64{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 8 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "**") {
			continue
		}
		s := house.Service(strings.Trim(cells[1], " *"))
		if !house.IsService(s) {
			continue // the supervisor: test/units compares its units
		}
		rights[s] = 0
		for _, name := range regexp.MustCompile(`CAP_[A-Z_]+`).FindAllString(cells[len(cells)-2], -1) {
			bit, ok := bits[name]
			if !ok {
				e.Errorf("the architecture page gives %s %s, which this test does not know", s, name)
			}
			rights[s] |= 1 << bit
		}
	}
	return rights
}

// procStatus reads fields of /proc/PID/status.
func procStatus(e *env, pid int64) map[string]string {
	e.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		e.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		fields[k] = strings.Join(strings.Fields(v), " ")
	}
	return fields
}

// groupsNamed are the ids of the groups the machine has of these, as /proc shows
// them.
func groupsNamed(names ...string) string {
	var ids []int
	for _, name := range names {
		if g, err := user.LookupGroup(name); err == nil {
			if id, err := strconv.Atoi(g.Gid); err == nil {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return strings.Trim(fmt.Sprint(ids), "[]")
}

// rights compares what each process may do with the architecture page.
func rights(e *env) {
	documented := documentedRights(e)
	users := map[string]house.Service{}
	for s, hello := range e.n.awaitServing(e.T, usual) {
		want, ok := documented[s]
		if !ok {
			e.Errorf("%s is not in the architecture page's table", s)
		}
		st := procStatus(e, hello.GetPid())
		for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
			if got, err := strconv.ParseUint(st[set], 16, 64); err != nil || got != want {
				e.Errorf("%s: %s is %s, the architecture page says %016x", s, set, st[set], want)
			}
		}
		if st["NoNewPrivs"] != "1" {
			e.Errorf("%s may gain rights: NoNewPrivs is %s", s, st["NoNewPrivs"])
		}
		uid := strings.Fields(st["Uid"])[0]
		if other, taken := users[uid]; taken || uid == "0" || strings.Repeat(uid+" ", 4) != st["Uid"]+" " {
			e.Errorf("%s runs under uids %s, as does %s", s, st["Uid"], other)
		}
		users[uid] = s
		info, err := os.Stat(strings.TrimPrefix(e.n.Runtime.Endpoint(), "unix://"))
		if err != nil {
			e.Fatal(err)
		}
		groups := map[house.Service]string{
			house.PodWorker: strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid)),
			house.NodeAPI:   groupsNamed("adm", "systemd-journal"),
		}
		if st["Groups"] != groups[s] {
			e.Errorf("%s is in groups %q, the architecture page says %q", s, st["Groups"], groups[s])
		}
	}
}

// strangerEnv makes the test binary a process that tries the sockets of the run
// directory it names.
const strangerEnv = "SEXTANT_TEST_STRANGER"

// stranger tries every socket and returns an error for each that answers.
func stranger(run string) error {
	paths := house.Paths{Run: run}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var errs []error
	for _, s := range house.Services() {
		if _, err := os.Stat(paths.Socket(s)); errors.Is(err, os.ErrNotExist) {
			continue // a bus that is off
		}
		conn, err := rpc.Dial(rpc.ClientConfig{Socket: paths.Socket(s), Timeout: 2 * time.Second})
		if err != nil {
			return err
		}
		if hello, err := nodev1.NewNodeServiceClient(conn).Hello(ctx, &nodev1.HelloRequest{Protocol: house.Protocol}); err == nil {
			errs = append(errs, fmt.Errorf("%s says hello to a stranger: %v", s, hello))
		}
		errs = append(errs, conn.Close())
		if body, err := debug(ctx, paths.DebugSocket(s), "/metrics"); err == nil {
			errs = append(errs, fmt.Errorf("%s shows a stranger %d bytes of metrics", s, len(body)))
		}
	}
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: paths.Broker(), Timeout: 2 * time.Second})
	if err != nil {
		return err
	}
	// A refusal is an answer too: a stranger has no connection.
	_, err = runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
	if code := status.Code(err); code != codes.Unavailable {
		errs = append(errs, fmt.Errorf("the broker answers a stranger: %s", code))
	}
	return errors.Join(append(errs, conn.Close())...)
}

func debug(ctx context.Context, socket, path string) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://unix"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return b, errors.Join(err, resp.Body.Close())
}

// as runs this test binary as a user of no service, or of one.
func (e *env) as(uid uint32) (string, error) {
	e.Helper()
	self, err := os.Executable()
	if err != nil {
		e.Fatal(err)
	}
	// Where the go tool puts the test binary only root may look. Another process
	// copies it: a file that this one has open for writing may be inherited by a
	// child that is just being started, and is then too busy to be run.
	program := filepath.Join(filepath.Dir(e.n.Run), fmt.Sprintf("stranger-%d", uid))
	if out, err := exec.CommandContext(e.Context(), "install", "-m", "0755", self, program).CombinedOutput(); err != nil {
		e.Fatalf("%v: %s", err, out)
	}
	e.Cleanup(func() {
		if err := os.Remove(program); err != nil {
			e.Error(err)
		}
	})
	cmd := exec.CommandContext(e.Context(), program)
	cmd.Env = []string{strangerEnv + "=" + e.n.Run}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// strangers are refused on every socket, and a service where it has no business.
func strangers(e *env) {
	if out, err := e.as(61234); err != nil || out != "" {
		e.Errorf("uid 61234 was not refused everywhere: %v\n%s", err, out)
	}
	// The same program finds every door open under a service's uid: it can fail.
	prober, err := e.n.hello(e.Context(), house.Prober)
	if err != nil {
		e.Fatal(err)
	}
	uid, err := strconv.ParseUint(strings.Fields(procStatus(e, prober.GetPid())["Uid"])[0], 10, 32)
	if err != nil {
		e.Fatal(err)
	}
	out, err := e.as(uint32(uid))
	for _, s := range e.n.services() {
		if !strings.Contains(out, string(s)+" says hello") {
			e.Errorf("%s does not speak to prober's uid: %v\n%s", s, err, out)
		}
	}
	if !strings.Contains(out, "the broker answers") {
		e.Errorf("the broker does not answer prober: %v\n%s", err, out)
	}
	// Root is the operator, and that is not everything.
	e.refused(e.n.paths.Socket(house.Volume), "volume.Declare", "/sextant.volume.v1.VolumeService/Declare")
	e.refused(e.n.paths.Socket(house.Config), "config.Token", "/sextant.config.v1.ConfigService/Token")
	e.refused(e.n.paths.Broker(), "RunPodSandbox", "/runtime.v1.RuntimeService/RunPodSandbox")
	e.refused(e.n.paths.Broker(), "StopContainer", "/runtime.v1.RuntimeService/StopContainer")
	if _, err := pull(e.Context(), e.n, house.ConfigSecrets, func(string, *configv1.Object) (int, error) { return 0, nil }); err == nil {
		e.Error("the operator may read the feed of secrets")
	}
}

// refused calls a method that the operator must not call.
func (e *env) refused(socket, what, method string) {
	e.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket, Timeout: time.Minute})
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	err = conn.Invoke(e.Context(), method, &nodev1.HelloRequest{}, &nodev1.HelloResponse{}, grpc.WaitForReady(false))
	if status.Code(err) != codes.PermissionDenied {
		e.Errorf("%s by the operator: %v, want PermissionDenied", what, err)
	}
}

// garbage is written to every socket and to the bus; no process may end of it.
func garbage(e *env) {
	before := e.n.awaitServing(e.T, usual)
	targets := []func() (net.Conn, error){}
	dial := func(network, address string) {
		targets = append(targets, func() (net.Conn, error) { return net.DialTimeout(network, address, time.Minute) })
	}
	for _, s := range e.n.services() {
		dial("unix", e.n.paths.Socket(s))
		dial("unix", e.n.paths.DebugSocket(s))
	}
	dial("unix", e.n.paths.Broker())
	dial("tcp", net.JoinHostPort(e.n.IP, strconv.Itoa(e.n.Port)))
	if !e.n.busOff {
		address, err := os.ReadFile(e.n.paths.BusAddress())
		if err != nil {
			e.Fatal(err)
		}
		u, err := url.Parse(strings.TrimSpace(string(address)))
		if err != nil {
			e.Fatal(err)
		}
		dial("tcp", u.Host)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, connect := range targets {
		for _, bytes := range rubbish(random) {
			conn, err := connect()
			if err != nil {
				e.Errorf("connect: %v", err)
				continue
			}
			_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond)) // on a socket
			_, _ = conn.Write(bytes)                                     // hung up on, perhaps
			_, _ = conn.Read(make([]byte, 1<<10))
			_ = conn.Close()
		}
	}
	// What is well formed up to the message.
	for _, s := range e.n.services() {
		conn, err := rpc.Dial(rpc.ClientConfig{Socket: e.n.paths.Socket(s), Timeout: time.Minute})
		if err != nil {
			e.Fatal(err)
		}
		for method := range house.Methods() {
			for range 4 {
				err := conn.Invoke(e.Context(), method, noise(random, 200), noise(nil, 0), grpc.ForceCodec(raw{}))
				if code := status.Code(err); code == codes.Unavailable {
					e.Errorf("%s %s: %v", s, method, err)
				}
			}
		}
		_ = conn.Close() // nothing was left to send
	}
	e.create(e.pod("after"))
	e.awaitRunning("after", usual)
	for s, hello := range e.n.awaitServing(e.T, usual) {
		if hello.GetPid() != before[s].GetPid() {
			e.Errorf("%s was process %d and is %d", s, before[s].GetPid(), hello.GetPid())
		}
	}
}

// raw is a gRPC codec for messages that are bytes already.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = b
	return nil
}

func noise(random *rand.Rand, most int) *[]byte {
	if random == nil {
		return &[]byte{}
	}
	b := make([]byte, random.IntN(most))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return &b
}

// rubbish is what a confused or malicious peer may send.
func rubbish(random *rand.Rand) [][]byte {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	all := [][]byte{
		{}, []byte("\x00"), []byte("GET / HTTP/1.1\r\n\r\n"), []byte("GET /" + strings.Repeat("a", 1<<16) + " HTTP/1.1\r\n"),
		[]byte(preface), []byte(preface + "\xff\xff\xff\x04\xff\xff\xff\xff\xff"), // a frame of 16 MiB
		[]byte(preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x05\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\xff"), // headers that do not decode
		[]byte("CONNECT {\"verbose\":1,\"nkey\":\"x\",\"sig\":\"!\"}\r\nPUB a 99999999\r\n"),
		[]byte("SUB > 1\r\nPUB sextant.v1.config.pods.x -1\r\n\r\n"), []byte("CONNECT " + strings.Repeat("[", 1<<14)),
		[]byte(strings.Repeat("PING\r\n", 1000)),
	}
	for range 6 {
		all = append(all, *noise(random, 1<<12), append([]byte(preface), *noise(random, 1<<10)...))
	}
	return all
}
