// SPDX-License-Identifier: Apache-2.0

package fakecri_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/test/fakecri"
)

func TestExit(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	for i, tt := range []struct {
		end    func(id string)
		code   int32
		reason string
	}{
		{func(id string) { n.Exit(id, 0) }, 0, "Completed"},
		{func(id string) { n.Exit(id, 42) }, 42, "Error"},
		{func(id string) { n.Exit(id, 1); n.Exit(id, 2) }, 1, "Error"},
		{func(id string) { n.OOMKill(id) }, 137, "OOMKilled"},
		{func(id string) { n.LoseExit(id) }, 255, "Unknown"},
	} {
		_, id := n.pod(fmt.Sprint("pod", i), "app")
		tt.end(id)
		if st := n.told(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != tt.code || st.GetReason() != tt.reason {
			t.Errorf("%d: %v", i, st)
		}
	}
}

func TestConventionalImages(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	for image, want := range map[string]int32{"fake/exit:5": 5, "fake/exit": 0, "fake/oom": 137} {
		n.pod(image, image)
		if st := n.ended(image); st.GetExitCode() != want {
			t.Errorf("%s: %v", image, st)
		}
	}
	_, server := n.pod("server", "fake/sleep")
	n.must(n.stop(server, 60))
	if st := n.ended("server"); st.GetExitCode() != 0 || st.GetReason() != "Completed" {
		t.Errorf("server: %v", st)
	}
	if got := n.Signals(server); !slices.Equal(got, []string{"TERM"}) {
		t.Errorf("server got %v", got)
	}
	_, err := n.pull("fake/missing:v1")
	n.code(err, codes.NotFound)
	_, err = n.pull("fake/denied")
	n.code(err, codes.Unknown)
}

func TestStopOnFakeClock(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	n := start(t, fakecri.Config{Clock: clk})
	_, id := n.pod("a", "fake/ignore-term")
	done := make(chan error, 1)
	go func() { done <- n.stop(id, 30) }()
	n.waitFor("no timer", clk.HasWaiters)
	clk.Step(29 * time.Second)
	if st := n.told(id).GetState(); st != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("%v before its time", st)
	}
	clk.Step(time.Second)
	n.must(<-done)
	st := n.ended("a")
	if ran := time.Duration(st.GetFinishedAt() - st.GetStartedAt()); ran != 30*time.Second || st.GetExitCode() != 137 {
		t.Errorf("ran %v: %v", ran, st)
	}
	if got := n.Signals(id); !slices.Equal(got, []string{"TERM", "KILL"}) {
		t.Errorf("signals %v", got)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	n := start(t, fakecri.Config{Clock: clk})
	n.pod("a", "busybox", "sh", "-c", "sleep 100; exit 3")
	n.pod("b", "busybox", "exit", "4", "after", "100s")
	n.must(n.Settle(n.ctx))
	clk.Step(100 * time.Second)
	if a, b := n.ended("a"), n.ended("b"); a.GetExitCode() != 3 || b.GetExitCode() != 4 {
		t.Errorf("got %v, %v", a, b)
	}
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	uid := int64(1000)
	n.Preload(fakecri.Image{
		Ref: "app", Script: "exit 21", UID: &uid,
		Programs: map[string]string{"/server": "exit 22"},
	})
	for i, tt := range []struct {
		command, args []string
		code          int32
	}{
		{nil, nil, 21},
		{nil, []string{"--flag"}, 21},
		{[]string{"/server"}, []string{"--port=80"}, 22},
		{[]string{"sh", "-c", "/server || exit 23"}, nil, 23},
		{[]string{"exit 24; exit 25"}, nil, 24},
		{[]string{"exit"}, []string{"26", "after", "1ms"}, 26},
		{[]string{"/nowhere"}, nil, 128},
	} {
		pod := fmt.Sprint("pod", i)
		created, err := n.rc.CreateContainer(n.ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: n.run(pod),
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "app"},
				Command: tt.command, Args: tt.args,
			},
		})
		n.must(err)
		if err := n.start(created.GetContainerId()); (err != nil) != (tt.code == 128) {
			t.Errorf("%v: %v", tt.command, err)
		}
		if st := n.ended(pod); st.GetExitCode() != tt.code || st.GetUser().GetLinux().GetUid() != uid {
			t.Errorf("%v %v: %v", tt.command, tt.args, st)
		}
	}
}

func TestKillSandbox(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	sb, ctr := n.pod("a", "app")
	n.KillSandbox(sb)
	if st := n.toldSandbox(sb); st.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("sandbox %v", st)
	}
	if st := n.told(ctr); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("container %v", st)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	sb, ctr := n.pod("a", "app")
	other := n.run("b")
	events := n.events()
	n.Forget(ctr)
	n.Forget(sb)
	if len(n.Containers()) != 0 || len(n.Sandboxes()) != 1 {
		t.Errorf("left: %v, %v", n.Containers(), n.Sandboxes())
	}
	n.KillSandbox(other)
	if ev := <-events; ev.GetContainerId() != other {
		t.Errorf("an event of what was forgotten: %v", ev)
	}
	n.run("a") // the name is free
}

func TestPull(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{Images: []fakecri.Image{{Ref: "here:1", Pinned: true, Size: 77}}})
	st, err := n.ic.ImageStatus(n.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "docker.io/library/here:1"}})
	n.must(err)
	if !st.GetImage().GetPinned() || st.GetImage().GetSize() != 77 {
		t.Errorf("preloaded: %v", st)
	}

	n.Withhold("app:1")
	_, err = n.pull("app:1")
	n.code(err, codes.NotFound)
	n.Provide(fakecri.Image{Ref: "app:1", ID: "sha256:" + fmt.Sprintf("%064d", 5)})
	id, err := n.pull("app:1")
	n.must(err)
	n.Provide(fakecri.Image{Ref: "app:2", ID: id})
	if again, err := n.pull("app:2"); err != nil || again != id {
		t.Errorf("pulled %q, %v", again, err)
	}
	st, err = n.ic.ImageStatus(n.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: id}})
	n.must(err)
	if want := []string{"docker.io/library/app:1", "docker.io/library/app:2"}; !slices.Equal(st.GetImage().GetRepoTags(), want) {
		t.Errorf("one image with %v", st.GetImage().GetRepoTags())
	}

	// A name that moves to other content leaves the old one without it.
	n.Provide(fakecri.Image{Ref: "app:1", ID: "sha256:" + fmt.Sprintf("%064d", 6)})
	moved, err := n.pull("app:1")
	n.must(err)
	if moved == id {
		t.Error("the new content was not pulled")
	}
	st, err = n.ic.ImageStatus(n.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: id}})
	n.must(err)
	if slices.Contains(st.GetImage().GetRepoTags(), "docker.io/library/app:1") {
		t.Errorf("the old one is still %v", st.GetImage().GetRepoTags())
	}
}

func TestPullLogin(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	login := &runtimeapi.AuthConfig{Username: "u", Password: "p"}
	n.Provide(fakecri.Image{Ref: "private", Login: login})
	_, err := n.pull("private")
	n.code(err, codes.Unknown)
	_, err = n.ic.PullImage(n.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "private"}, Auth: login})
	n.must(err)
}

func TestSlowPull(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	n := start(t, fakecri.Config{Clock: clk})
	n.SlowPull("big", time.Hour)
	done := make(chan error, 1)
	go func() { _, err := n.pull("big"); done <- err }()
	n.waitFor("no timer", clk.HasWaiters)
	clk.Step(time.Hour)
	n.must(<-done)

	ctx, cancel := context.WithCancel(n.ctx)
	go func() {
		_, err := n.ic.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "big"}})
		done <- err
	}()
	n.waitFor("no timer", clk.HasWaiters)
	cancel()
	n.code(<-done, codes.Canceled)
}

func TestStats(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	_, ctr := n.pod("a", "app")
	n.SetStats(ctr, fakecri.Stats{CPUNanos: 5, WorkingSet: 6, RSS: 7, Layer: 8})
	resp, err := n.rc.ContainerStats(n.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: ctr})
	n.must(err)
	st := resp.GetStats()
	if st.GetCpu().GetUsageCoreNanoSeconds().GetValue() != 5 || st.GetMemory().GetWorkingSetBytes().GetValue() != 6 ||
		st.GetMemory().GetUsageBytes().GetValue() != 6 || st.GetMemory().GetRssBytes().GetValue() != 7 || st.GetWritableLayer().GetUsedBytes().GetValue() != 8 {
		t.Errorf("got %v", st)
	}
}

func TestAddressesRunOut(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{PodCIDR: netip.MustParsePrefix("10.9.8.7/30")})
	sb := n.run("a")
	if ip := n.Sandbox("a").GetNetwork().GetIp(); ip != "10.9.8.6" {
		t.Errorf("first address %s", ip)
	}
	_, err := n.tryRun("b")
	n.code(err, codes.Unknown)
	_, err = n.rc.StopPodSandbox(n.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb})
	n.must(err)
	n.run("b") // the failed one left no name, the stopped one its address
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{Handlers: []string{"vm"}})
	resp, err := n.rc.RunPodSandbox(n.ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig("a"), RuntimeHandler: "vm"})
	n.must(err)
	if st := n.toldSandbox(resp.GetPodSandboxId()); st.GetRuntimeHandler() != "vm" {
		t.Errorf("got %v", st)
	}
	st, err := n.rc.Status(n.ctx, &runtimeapi.StatusRequest{})
	n.must(err)
	if len(st.GetRuntimeHandlers()) != 3 {
		t.Errorf("handlers %v", st.GetRuntimeHandlers())
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]fakecri.Config{
		"flavor":  {Flavor: 99},
		"ref":     {Images: []fakecri.Image{{Ref: "Not A Reference"}}},
		"script":  {Images: []fakecri.Image{{Ref: "a", Script: "while"}}},
		"program": {Images: []fakecri.Image{{Ref: "a", Programs: map[string]string{"/x": "fi"}}}},
	} {
		if _, err := fakecri.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLogsOfAHundredPods(t *testing.T) {
	t.Parallel()
	const pods = 100
	n := start(t, fakecri.Config{Images: []fakecri.Image{{Ref: "app"}}})
	dir := t.TempDir()
	began := time.Now()
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			config := sandboxConfig(fmt.Sprint("pod", i))
			config.LogDirectory = filepath.Join(dir, config.GetMetadata().GetName())
			sb, err := n.rc.RunPodSandbox(n.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			if err != nil {
				t.Error(err)
				return
			}
			c, err := n.rc.CreateContainer(n.ctx, &runtimeapi.CreateContainerRequest{
				PodSandboxId: sb.GetPodSandboxId(), SandboxConfig: config,
				Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "app"},
					Command: []string{"sh", "-c", "echo up; trap 'exit 0' TERM; sleep infinity"}, LogPath: "main/0.log",
				},
			})
			if err != nil {
				t.Error(err)
				return
			}
			if err := n.start(c.GetContainerId()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n.must(n.Settle(n.ctx))
	t.Logf("%d pods in %v", pods, time.Since(began))
	ips := map[string]bool{}
	for _, sb := range n.Sandboxes() {
		ips[sb.GetNetwork().GetIp()] = true
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*", "main", "0.log"))
	n.must(err)
	if len(ips) != pods || len(logs) != pods || len(n.listed()) != pods {
		t.Errorf("%d addresses, %d logs, %d containers", len(ips), len(logs), len(n.listed()))
	}
	if data, err := os.ReadFile(logs[0]); err != nil || len(data) == 0 {
		t.Errorf("log %q, %v", data, err)
	}
}

func BenchmarkPod(b *testing.B) {
	rt := fakecri.Start(b, fakecri.Config{Images: []fakecri.Image{{Ref: "app"}}})
	rc := runtimeapi.NewRuntimeServiceClient(rt.Conn(b))
	ctx := b.Context()
	for i := 0; b.Loop(); i++ {
		sb, err := rc.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(fmt.Sprint(i))})
		if err != nil {
			b.Fatal(err)
		}
		c, err := rc.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "app"},
		}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := rc.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
			b.Fatal(err)
		}
		if _, err := rc.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb.GetPodSandboxId()}); err != nil {
			b.Fatal(err)
		}
	}
}
