// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	"github.com/sextant-node/sextant/services/supervisor/reaper"
	"github.com/sextant-node/sextant/services/supervisor/tools"
	"github.com/sextant-node/sextant/test/fakecri"
)

// asPeer in the environment has the test's binary try every door of the run
// directory it names, and print an attempt per line.
const asPeer = "SEXTANT_TEST_AS_PEER"

// reached is what the fake runtime answers to every call: no service does.
const reached = codes.DataLoss

// attempt is one call and its answer.
type attempt struct {
	// Door is a socket's path below the run directory; What a method's full name,
	// "feed NAME", or "debug".
	Door, What string
	Code       codes.Code
	Text       string
}

// doors are the sockets of a node with the gRPC services that each serves.
func doors(run string) map[string][]string {
	paths := house.Paths{Run: run}
	common := []string{"sextant.node.v1.NodeService", "grpc.health.v1.Health", "sextant.feed.v1.FeedService"}
	own := map[house.Service]string{
		house.Config: "sextant.config.v1.ConfigService", house.PodWorker: "sextant.podworker.v1.PodWorkerService",
		house.Pleg: "sextant.pleg.v1.PlegService", house.Volume: "sextant.volume.v1.VolumeService",
		house.Resource: "sextant.resource.v1.ResourceService",
	}
	all := map[string][]string{
		paths.Broker():     {"runtime.v1.RuntimeService", "runtime.v1.ImageService"},
		paths.Supervisor(): {"sextant.supervisor.v1.SupervisorService"},
		paths.Tools():      {"sextant.supervisor.v1.ToolsService"},
	}
	for _, s := range house.Services() {
		all[paths.Socket(s)] = common
		if name := own[s]; name != "" {
			all[paths.Socket(s)] = append(slices.Clone(common), name)
		}
	}
	return all
}

// methods are all of the house and all of the runtime, most of which are for
// podworker alone.
func methods() []string {
	all := slices.Collect(maps.Keys(house.Methods()))
	for _, desc := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range desc.Methods {
			all = append(all, "/"+desc.ServiceName+"/"+m.MethodName)
		}
		for _, m := range desc.Streams {
			all = append(all, "/"+desc.ServiceName+"/"+m.StreamName)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// tryEverything is the peer's part: every method at every socket, every feed and
// every debug socket.
func tryEverything(run string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	print := json.NewEncoder(out)
	for socket := range doors(run) {
		conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket})
		if err != nil {
			return err
		}
		say := func(what string, err error) error {
			text := ""
			if err != nil {
				text = err.Error()
			}
			return print.Encode(attempt{socket, what, status.Code(err), text})
		}
		if err := connected(ctx, conn); err != nil {
			if err := say("connect", err); err != nil {
				return err
			}
			continue
		}
		for _, method := range methods() {
			if err := say(method, call(ctx, conn, method)); err != nil {
				return err
			}
		}
		for _, f := range house.Feeds() {
			_, err := feedv1.NewFeedServiceClient(conn).Changes(ctx, &feedv1.ChangesRequest{Feed: f.Name})
			if err := say("feed "+f.Name, err); err != nil {
				return err
			}
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	for _, s := range house.Services() {
		socket := house.Paths{Run: run}.DebugSocket(s)
		err := getMetrics(ctx, socket)
		if err := print.Encode(attempt{socket, "debug", status.Code(err), fmt.Sprint(err)}); err != nil {
			return err
		}
	}
	return nil
}

// connected waits until a connection is there, or was refused.
func connected(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			return status.Error(codes.Unavailable, "refused")
		default:
			if !conn.WaitForStateChange(ctx, state) {
				return ctx.Err()
			}
		}
	}
}

// call makes a call with an empty request, and ends it at the first answer. A stream that
// is served has answered with its header: its first message may be hours away.
func call(ctx context.Context, conn *grpc.ClientConn, method string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(&emptypb.Empty{}), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if header, err := stream.Header(); header != nil || err != nil {
		return err
	}
	return stream.RecvMsg(&emptypb.Empty{})
}

func getMetrics(ctx context.Context, socket string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://unix/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// household is every process of a node, each under a uid of its own, on a fake
// runtime and without an API server.
type household struct {
	*testing.T
	dir, program string
	paths        house.Paths
	ids          house.Identities
}

// firstUID of the services'; nobody on the machine has it.
const firstUID = 64600

func newHousehold(t *testing.T) *household {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give each service a uid of its own")
	}
	// Sockets' paths are bounded, and others must get there.
	dir, err := os.MkdirTemp("", "rights")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	h := &household{
		T: t, dir: dir, program: filepath.Join(dir, "sextant"), ids: house.Identities{},
		paths: house.Paths{Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state")},
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Another process copies it: a file that this one has open for writing may be
	// inherited by a child that is just being started, and is too busy to be run.
	if out, err := exec.CommandContext(t.Context(), "install", "-m", "0755", self, h.program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.must(os.Chmod(dir, 0o755))
	for i, s := range house.Services() {
		h.ids[s] = firstUID + uint32(i)
		for _, folder := range []string{filepath.Join(h.paths.Run, string(s)), h.paths.StateOf(s), h.root(s)} {
			h.must(os.MkdirAll(folder, 0o755))
			h.must(os.Chown(folder, int(h.ids[s]), int(h.ids[s])))
		}
	}
	data, err := json.Marshal(h.ids)
	h.must(err)
	h.must(os.WriteFile(h.paths.Identities(), data, 0o644))
	h.must(bus.EnsureKeys(h.paths.BusKeys(), h.ids))
	return h
}

func (h *household) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// root is the kubelet's root directory, one a service.
func (h *household) root(s house.Service) string { return filepath.Join(h.dir, "root", string(s)) }

// args of a service's process.
func (h *household) args(s house.Service, runtime string) []string {
	root := h.root(s)
	args := []string{"run", string(s), "--run-dir=" + h.paths.Run, "--state-dir=" + h.paths.State, "--bus=off"}
	switch s {
	case house.PodWorker:
		args = append(args, "--container-runtime-endpoint="+runtime, "--root-dir="+root, "--pod-logs-dir="+root+"/logs", "--links-dir="+root+"/links")
	case house.Config:
		file := filepath.Join(root, "kubelet.yaml")
		text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\nport: 0\nhealthzPort: 0\nauthentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
		h.must(os.WriteFile(file, []byte(text), 0o644))
		args = append(args, "--config="+file, "--root-dir="+root, "--cert-dir="+root)
	case house.Volume, house.Resource:
		args = append(args, "--root-dir="+root)
	}
	return args
}

// as is a process under a uid.
func (h *household) as(uid uint32, env string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(h.Context(), h.program, args...)
	cmd.Env, cmd.Dir = append(os.Environ(), env), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// start runs a service's process until the test ends.
func (h *household) start(s house.Service, runtime string) {
	h.Helper()
	var log bytes.Buffer
	cmd := h.as(h.ids[s], program+"=1", h.args(s, runtime)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	h.must(cmd.Start())
	h.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
		if h.Failed() {
			h.Logf("%s: %.4000s", s, log.String())
		}
	})
}

// serve runs one of the supervisor's parts in this process until the test ends.
func (h *household) serve(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	h.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			h.Error(err)
		}
	})
}

// awaits waits until every socket is there.
func (h *household) awaits() {
	h.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for socket := range doors(h.paths.Run) {
		for {
			if _, err := os.Stat(socket); err == nil {
				break
			}
			select {
			case <-limit:
				h.Fatalf("%s does not appear", socket)
			case <-tick.C:
			}
		}
	}
}

var rightsOut = flag.String("rights-out", "", "TestRightsOnSockets: file that its table is added to")

// TestRightsOnSockets has every uid of the node, and one of no service, try every
// method, feed and debug socket of the running processes. What happens is what the
// tables of pkg/house say: an allowed call gets to what serves it, any other is
// PermissionDenied.
func TestRightsOnSockets(t *testing.T) {
	h := newHousehold(t)
	rt := fakecri.Start(t, fakecri.Config{Socket: filepath.Join(h.dir, "cri.sock")})
	h.must(os.Chmod(filepath.Join(h.dir, "cri.sock"), 0o666))
	rt.Fail(fakecri.Match{}, -1, status.Error(reached, "the runtime was reached"))
	quiet := slog.New(slog.DiscardHandler)
	h.serve((&reaper.Reaper{Socket: h.paths.Supervisor(), Identities: h.ids, Log: quiet}).Run)
	h.serve(tools.New(tools.Config{Socket: h.paths.Tools(), Identities: h.ids, Root: h.dir, Log: quiet}).Run)
	for _, s := range house.Services() {
		h.start(s, rt.Endpoint())
	}
	h.awaits()
	peers := map[house.Service]uint32{house.Operator: 0, "stranger": firstUID + 99}
	for s, uid := range h.ids {
		peers[s] = uid
	}
	var table strings.Builder
	for _, peer := range slices.Sorted(maps.Keys(peers)) {
		uid := peers[peer]
		t.Run(string(peer), func(t *testing.T) {
			var out, problems bytes.Buffer
			cmd := h.as(uid, asPeer+"="+h.paths.Run)
			cmd.Stdout, cmd.Stderr = &out, &problems
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, problems.String())
			}
			tried, refused := 0, 0
			for decoder := json.NewDecoder(&out); decoder.More(); tried++ {
				var a attempt
				if err := decoder.Decode(&a); err != nil {
					t.Fatal(err)
				}
				if a.Code == codes.PermissionDenied {
					refused++
				}
				if wrong := a.judge(h.paths, peer); wrong != "" {
					t.Errorf("%s %s: %s %q, %s", strings.TrimPrefix(a.Door, h.paths.Run), a.What, a.Code, a.Text, wrong)
				}
			}
			want := len(doors(h.paths.Run))*(len(methods())+len(house.Feeds())) + len(house.Services())
			if peer == "stranger" {
				want = len(doors(h.paths.Run)) + len(house.Services())
			}
			if tried != want {
				t.Errorf("%d attempts, want %d", tried, want)
			}
			fmt.Fprintf(&table, "%-10s  %8d  %7d\n", peer, tried, refused)
		})
	}
	if *rightsOut != "" {
		h.must(appendTo(*rightsOut, "\nuid of      attempts  refused\n"+table.String()))
	}
}

func appendTo(path, text string) (err error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(text)
	return err
}

// judge compares an attempt's answer with the tables; it returns what is wrong.
func (a attempt) judge(paths house.Paths, peer house.Service) string {
	if peer == "stranger" {
		if a.Code != codes.Unavailable || a.What != "connect" && a.What != "debug" {
			return "want no connection"
		}
		return ""
	}
	owner := house.Service(filepath.Base(filepath.Dir(a.Door)))
	if a.What == "connect" {
		return "want a connection"
	}
	if a.What == "debug" {
		may := peer == owner || peer == house.Operator || peer == house.NodeAPI
		if may != (a.Code == codes.OK) {
			return fmt.Sprintf("may look: %v", may)
		}
		return ""
	}
	if name, isFeed := strings.CutPrefix(a.What, "feed "); isFeed {
		f, _ := house.FeedNamed(name)
		switch {
		case f.Owner != owner || a.Door == paths.Broker():
			return wants(a.Code, codes.NotFound, codes.Unimplemented)
		case house.MayRead(peer, name):
			return wants(a.Code, codes.OK)
		}
		return wants(a.Code, codes.PermissionDenied)
	}
	served := slices.Contains(doors(paths.Run)[a.Door], strings.Split(a.What, "/")[1])
	switch {
	case a.Door == paths.Broker() && !house.MayCall(peer, a.What):
		return wants(a.Code, codes.PermissionDenied)
	case a.Door == paths.Broker() && served:
		return wants(a.Code, reached)
	case !served:
		return wants(a.Code, codes.Unimplemented)
	case !house.MayCall(peer, a.What):
		return wants(a.Code, codes.PermissionDenied)
	case slices.Contains([]codes.Code{codes.PermissionDenied, codes.Unimplemented, codes.Canceled, codes.DeadlineExceeded}, a.Code):
		return "want an answer of the method"
	}
	return ""
}

func wants(got codes.Code, any ...codes.Code) string {
	if slices.Contains(any, got) {
		return ""
	}
	return fmt.Sprintf("want %v", any)
}
