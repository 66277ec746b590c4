// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func running(t *testing.T, script string) process {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	_, start, ok := stat(cmd.Process.Pid)
	if !ok {
		t.Fatal("no such process")
	}
	return process{cmd.Process.Pid, start}
}

func TestProcessIsKnownByItsStart(t *testing.T) {
	p := running(t, "exec sleep 100")
	if !p.alive() {
		t.Error("a running process counts as gone")
	}
	if (process{p.PID, p.StartTime + 1}).alive() {
		t.Error("another process with the same number counts as the recorded one")
	}
	if (process{}).alive() {
		t.Error("no process counts as alive")
	}
	file := filepath.Join(t.TempDir(), "pid")
	if err := writeJSON(file, p); err != nil {
		t.Fatal(err)
	}
	if got := readProcess(file); got != p {
		t.Errorf("read back %+v, wrote %+v", got, p)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readProcess(file); got != (process{}) {
		t.Errorf("a damaged file yields %+v", got)
	}
}

func TestStopKillsWhatIgnoresTheAsking(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ready")
	p := running(t, "trap '' TERM; : > "+marker+"; while :; do sleep 0.05; done")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, func() bool { _, err := os.Stat(marker); return err == nil }); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(ctx, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.alive() {
		t.Error("it still runs")
	}
	if err := p.stop(ctx, time.Second); err != nil {
		t.Errorf("stopping what is gone: %v", err)
	}
}

func TestDescendants(t *testing.T) {
	p := running(t, "sh -c 'sleep 100 & wait' & wait")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []int
	if err := poll(ctx, func() bool { got = descendants(p.PID); return len(got) == 2 }); err != nil {
		t.Fatalf("descendants = %v, want a shell and its sleep", got)
	}
	if slices.Contains(got, p.PID) {
		t.Error("a process is its own descendant")
	}
	for _, pid := range got {
		_, start, _ := stat(pid)
		if err := (process{pid, start}).stop(ctx, time.Second); err != nil {
			t.Error(err)
		}
	}
}

func TestShimSockets(t *testing.T) {
	state := t.TempDir()
	for path, body := range map[string]string{
		"k8s.io/a/address":        "unix:///run/containerd/s/aaa",
		"k8s.io/b/bootstrap.json": `{"version":3,"address":"unix:///run/containerd/s/bbb","protocol":"ttrpc"}`,
		"k8s.io/c/config.json":    `{"x":"unix:///not/a/shim"}`,
	} {
		p := filepath.Join(state, taskDir, path)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := shimSockets(state)
	slices.Sort(got)
	if d := cmp.Diff([]string{"/run/containerd/s/aaa", "/run/containerd/s/bbb"}, got); d != "" {
		t.Error(d)
	}
}
