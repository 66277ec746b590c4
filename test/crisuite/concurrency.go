// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// several is how many callers the tests set on one thing.
const several = 6

// together calls do from several goroutines and counts the successes.
func together(do func() error) (succeeded int32) {
	var wg sync.WaitGroup
	var n atomic.Int32
	for range several {
		wg.Go(func() {
			if do() == nil {
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return n.Load()
}

var concurrencyTests = []test{
	{"pods live and end side by side", func(e *env) {
		e.havePulled(e.target.Images.Shell)
		n := together(func() error {
			config := e.podConfig()
			resp, err := e.runtime.RunPodSandbox(e.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			if err != nil {
				e.Errorf("RunPodSandbox: %v", err)
				return err
			}
			p := &pod{env: e, id: resp.GetPodSandboxId(), config: config, logs: config.GetLogDirectory()}
			id, err := p.tryCreate(p.commandConfig(neverEnds...))
			if err != nil {
				e.Errorf("CreateContainer: %v", err)
			}
			c := &ctr{pod: p, id: id}
			if err = c.start(); err != nil {
				e.Errorf("StartContainer: %v", err)
			}
			if _, err = e.runtime.RemovePodSandbox(e.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
				e.Errorf("RemovePodSandbox: %v", err)
			}
			return err
		})
		if n != several {
			e.Errorf("%d of %d succeeded", n, several)
		}
	}},
	{"one of several equal sandboxes is run", func(e *env) {
		config := e.podConfig()
		var mu sync.Mutex
		var ids []string
		n := together(func() error {
			resp, err := e.runtime.RunPodSandbox(e.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			if err == nil {
				mu.Lock()
				ids = append(ids, resp.GetPodSandboxId())
				mu.Unlock()
			}
			return err
		})
		for _, id := range ids {
			_, err := e.runtime.RemovePodSandbox(e.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
			e.ok("RemovePodSandbox", err)
		}
		if n != 1 {
			e.Errorf("%d succeeded", n)
		}
	}},
	{"one of several equal containers is created, and started once", func(e *env) {
		p := e.pod()
		config := p.commandConfig(neverEnds...)
		e.havePulled(config.GetImage().GetImage())
		var id atomic.Value
		n := together(func() error {
			got, err := p.tryCreate(config)
			if err == nil {
				id.Store(got)
			}
			return err
		})
		if n != 1 {
			e.Fatalf("%d created", n)
		}
		c := &ctr{pod: p, id: id.Load().(string), config: config}
		if n := together(c.start); n != 1 {
			e.Errorf("%d started", n)
		}
	}},
	{"several stops all succeed", func(e *env) {
		c := e.pod().server()
		if n := together(func() error { return c.stop(30) }); n != several {
			e.Errorf("%d succeeded", n)
		}
		if st := c.exited(); st.GetExitCode() != 7 {
			e.Errorf("exit code %d", st.GetExitCode())
		}
	}},
	{"several removals remove", func(e *env) {
		// containerd refuses a removal while another is under way.
		c := e.pod().server()
		if n := together(c.remove); n == 0 {
			e.Error("none succeeded")
		}
		_, err := c.tryStatus()
		e.code("ContainerStatus", err, codes.NotFound)
	}},
}

var interruptTests = []test{
	{"what ran runs on, what ended meanwhile is known", func(e *env) {
		p := e.pod()
		runs := p.server()
		before := runs.status()
		dir := e.TempDir()
		config := p.shellConfig("echo ready; while [ ! -f /signal/go ]; do sleep 0.05; done; echo over; exit 5")
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/signal", HostPath: dir}}
		ends := p.create(config)
		e.ok("StartContainer", ends.start())
		ends.logged("ready")

		e.target.Interrupt(e, func() {
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				e.Fatal(err)
			}
		})
		e.until("the runtime does not come back", func() bool {
			_, err := e.runtime.Version(e.ctx, &runtimeapi.VersionRequest{})
			return err == nil
		})
		st := runs.status()
		if st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || st.GetStartedAt() != before.GetStartedAt() || st.GetCreatedAt() != before.GetCreatedAt() {
			e.Errorf("before %v, after %v", before, st)
		}
		if st := p.status(); st.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || st.GetNetwork().GetIp() == "" {
			e.Errorf("sandbox %v", st)
		}
		// containerd 2 loses some of these codes: then it says 255 and Unknown.
		st = ends.exited()
		known := st.GetExitCode() == 5 && st.GetReason() == "Error"
		lost := st.GetExitCode() == 255 && st.GetReason() == "Unknown"
		if !known && !lost || st.GetFinishedAt() == 0 {
			e.Errorf("ended meanwhile: %v", st)
		}
		_, err := runs.exec(20, "true")
		e.ok("ExecSync afterwards", err)
		e.ok("StopContainer afterwards", runs.stop(30))
		if st := runs.exited(); st.GetExitCode() != 7 {
			e.Errorf("exit code %d", st.GetExitCode())
		}
	}},
}
