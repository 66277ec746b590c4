// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	"github.com/sextant-node/sextant/test/disk"
)

// program in the environment has the test's binary be sextant.
const program = "SEXTANT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(program) != "" {
		main()
		return
	}
	if run := os.Getenv(asPeer); run != "" {
		if err := tryEverything(run, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// kept are the services with a state file (docs/state.md).
var kept = map[house.Service]string{
	house.Config: "config.db", house.PodWorker: "podworker.db", house.Prober: "state.db",
	house.Volume: "state.db", house.Resource: "state.db", house.Status: "status.db",
}

// rig is one service, alone, as a process.
type rig struct {
	*testing.T
	service house.Service
	paths   house.Paths
	root    string
	log     bytes.Buffer
	cmd     *exec.Cmd
}

func newRig(t *testing.T, s house.Service, state string) *rig {
	t.Helper()
	r := &rig{T: t, service: s, paths: house.Paths{Run: t.TempDir(), State: state}, root: t.TempDir()}
	t.Cleanup(func() { r.kill() })
	return r
}

func (r *rig) file() string { return filepath.Join(r.paths.StateOf(r.service), kept[r.service]) }

func (r *rig) start() {
	r.Helper()
	args := []string{"run", string(r.service), "--run-dir=" + r.paths.Run, "--state-dir=" + r.paths.State, "--bus=off"}
	switch r.service {
	case house.PodWorker:
		args = append(args, "--container-runtime-endpoint=unix://"+r.root+"/none.sock", "--root-dir="+r.root, "--pod-logs-dir="+r.root+"/logs", "--links-dir="+r.root+"/links")
	case house.Config:
		file := filepath.Join(r.root, "kubelet.yaml")
		text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\nstaticPodPath: " + r.root + "\nauthentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
		args = append(args, "--config="+file, "--root-dir="+r.root, "--cert-dir="+r.root)
	case house.Volume, house.Resource:
		args = append(args, "--root-dir="+r.root)
	}
	r.log.Reset()
	r.cmd = exec.Command(os.Args[0], args...)
	r.cmd.Env = append(os.Environ(), program+"=1")
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		r.Fatal(err)
	}
}

// kill ends the process by kill -9; its log may be read then.
func (r *rig) kill() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill() // it may have ended
	_ = r.cmd.Wait()         // killed
	r.cmd = nil
}

// hello waits for the service to say what it says of itself.
func (r *rig) hello(what string, ok func(*nodev1.HelloResponse) bool) {
	r.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: r.paths.Socket(r.service), Timeout: time.Minute})
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := nodev1.NewNodeServiceClient(conn).Hello(ctx, &nodev1.HelloRequest{Protocol: house.Protocol})
		if err == nil && ok(answer) {
			return
		}
		select {
		case <-ctx.Done():
			r.kill()
			r.Fatalf("%s never: %s: %v, %v\n%s", r.service, what, answer, err, r.log.String())
		case <-tick.C:
		}
	}
}

func answers(*nodev1.HelloResponse) bool { return true }

func damage(path string) func(*nodev1.HelloResponse) bool {
	return func(h *nodev1.HelloResponse) bool {
		return len(h.GetStateFiles()) == 1 && strings.Contains(h.GetStateFiles()[0].GetDamage(), path)
	}
}

func trouble(h *nodev1.HelloResponse) bool {
	return len(h.GetStateFiles()) == 1 && h.GetStateFiles()[0].GetTrouble() != ""
}

// told reports whether the service has emitted an Event; status writes its own.
func (r *rig) told(reason, about string) bool {
	r.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: r.paths.Socket(r.service), Timeout: time.Minute})
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	changes, err := feedv1.NewFeedServiceClient(conn).Changes(r.Context(), &feedv1.ChangesRequest{Feed: string(r.service) + ".events"})
	if err != nil {
		r.Fatal(err)
	}
	for _, item := range changes.GetUpserts() {
		e := &eventv1.Event{}
		if err := proto.Unmarshal(item.GetValue(), e); err != nil {
			r.Fatal(err)
		}
		if e.GetReason() == reason && e.GetObject().GetKind() == "Node" && strings.Contains(e.GetMessage(), about) {
			return true
		}
	}
	return false
}

// TestDamagedState: with its state file damaged in every way, each service starts,
// says so by Hello, Event and log, keeps the file, and goes on.
func TestDamagedState(t *testing.T) {
	ways := map[string]func(whole []byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"cut":       func(b []byte) []byte { return b[:len(b)/3] },
		"one bit":   func(b []byte) []byte { b[16] ^= 1; return b },
		"a folder":  nil,
		"something": func([]byte) []byte { return []byte("something else") },
	}
	for s := range kept {
		t.Run(string(s), func(t *testing.T) {
			r := newRig(t, s, t.TempDir())
			r.start()
			r.hello("up", answers)
			r.kill()
			whole, err := os.ReadFile(r.file())
			if err != nil {
				t.Fatal(err)
			}
			files, folders := 0, 0
			for name, spoil := range ways {
				var bad []byte
				if err := os.RemoveAll(r.file()); err != nil {
					t.Fatal(err)
				}
				if spoil == nil {
					err = os.Mkdir(r.file(), 0o700)
				} else {
					bad = spoil(bytes.Clone(whole))
					err = os.WriteFile(r.file(), bad, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				r.start()
				r.hello(name+": damage", damage(r.file()))
				if s != house.Status && !r.told("StateFileDamaged", r.file()) {
					t.Errorf("%s: no Event", name)
				}
				r.kill()
				if log := r.log.String(); !strings.Contains(log, "state file damaged") || !strings.Contains(log, r.file()) {
					t.Errorf("%s: not in the log\n%s", name, log)
				}
				// Of files the newest three stay; a folder stays besides.
				if spoil == nil {
					folders++
				} else {
					files = min(files+1, 3)
				}
				aside, err := filepath.Glob(r.file() + ".damaged-*")
				if err != nil || len(aside) != files+folders {
					t.Fatalf("%s: set aside: %v, %v", name, aside, err)
				}
				if spoil != nil && !holds(t, aside, bad) {
					t.Errorf("%s: it was not kept as it was", name)
				}
			}
			r.start()
			r.hello("well", func(h *nodev1.HelloResponse) bool { return len(h.GetStateFiles()) == 0 })
		})
	}
}

func holds(t *testing.T, files []string, want []byte) bool {
	t.Helper()
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			continue
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Equal(data, want) {
			return true
		}
	}
	return false
}

// TestADiskThatTakesNoWrites: each service starts on a disk that is full or
// read-only, says so, and writes when it can.
func TestADiskThatTakesNoWrites(t *testing.T) {
	for s := range kept {
		t.Run(string(s), func(t *testing.T) {
			d := disk.Small(t, "1m")
			state := filepath.Join(d.Dir, "state")
			if err := os.MkdirAll(filepath.Join(state, string(s)), 0o700); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, s, state)
			d.Fill()
			r.start()
			r.hello("full", trouble)
			if s != house.Status && !r.told("StateFileNotWritten", r.file()) {
				t.Error("no Event")
			}
			d.Free()
			r.hello("room again", func(h *nodev1.HelloResponse) bool { return !trouble(h) })
			r.kill()
			if _, err := os.Stat(r.file()); err != nil {
				t.Error(err)
			}
			d.ReadOnly(true)
			r.start()
			r.hello("read-only", trouble)
			r.kill()
			d.ReadOnly(false)
			r.start() // takes away what a life left that was killed while it made a file
			r.hello("writable", func(h *nodev1.HelloResponse) bool { return !trouble(h) })
			entries, err := os.ReadDir(filepath.Dir(r.file()))
			left := slices.DeleteFunc(names(entries), func(name string) bool { return name == "keep.key" }) // config's, once there is room
			if err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func names(entries []fs.DirEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestKilledWhileStarting: each service is killed while it makes its state file,
// before and after, and starts all the same.
func TestKilledWhileStarting(t *testing.T) {
	for s := range kept {
		t.Run(string(s), func(t *testing.T) {
			r := newRig(t, s, t.TempDir())
			for _, point := range []string{"store.write", "store.written"} {
				t.Setenv(fault.Env, point+"=kill")
				r.start()
				if err := r.cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatalf("%s: %v\n%s", point, err, r.log.String())
				}
				t.Setenv(fault.Env, "")
				r.start()
				r.hello(point, func(h *nodev1.HelloResponse) bool { return len(h.GetStateFiles()) == 0 })
				r.kill()
				if err := os.Remove(r.file()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
