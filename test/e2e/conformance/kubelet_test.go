// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// diskSize is room for the tests that fill the node's disk: they ask for ten GiB.
const diskSize = 12 << 30

// devicePlugin builds the program of that image.
func devicePlugin(dir string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(dir, "sample-device-plugin"),
		"k8s.io/kubernetes/test/images/sample-device-plugin")
	cmd.Dir = "../../env/conformance"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the sample device plugin: %w\n%s", err, out)
	}
	return nil
}

// leavings are the folders of a node, which the next agent is to find empty.
var leavings = []string{"/var/lib/kubelet", "/var/lib/sextant", "/var/log/pods", "/var/log/containers", "/run/sextant", "/var/run/cdi"}

// kubelet makes the machine ready for e2e_node to start an agent on it as its kubelet:
// the runtime is a unit, and the agent a program called kubelet.
func kubelet(t *testing.T, agent string) target {
	lab := harness.The(t)
	program := ""
	switch agent {
	case "reference":
		program = lab.Tool(t, "kubelet", "kubelet")
	case "sextant":
		program = lab.Binary(t)
	default:
		t.Fatalf("-agents: no agent %q", agent)
	}
	harness.KeepTunables(t)
	on := target{agent: agent, programs: filepath.Join(lab.Dir, "bin-"+agent)}
	if err := errors.Join(
		os.MkdirAll(on.programs, 0o755), os.MkdirAll("/lib/modules/"+release(t), 0o755),
		os.WriteFile("/usr/local/bin/sudo", []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755), // the tests are root already
	); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", program, filepath.Join(on.programs, "kubelet")).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", program, err, out)
	}
	t.Cleanup(func() { emptyLeavings(t) })
	runtime := harness.StartRuntimeUnit(t)
	provide(t, runtime)
	t.Cleanup(func() {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "systemctl", "stop", "kubelet-*").CombinedOutput()
		if err != nil {
			t.Errorf("stop what the tests have started: %v\n%s", err, out)
		}
	})
	return on
}

func release(t *testing.T) string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(name.Release[:])
}

// emptyLeavings removes what an agent and its pods have left.
func emptyLeavings(t *testing.T) {
	for _, dir := range leavings {
		mounts := harness.Mounts(dir)
		for i := len(mounts) - 1; i >= 0; i-- {
			if mounts[i] != dir {
				_ = unix.Unmount(mounts[i], unix.MNT_DETACH) // what is still there cannot be removed
			}
		}
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Error(err)
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				t.Error(err)
			}
		}
	}
}

// kubeletFlags are what e2e_node is told to start an agent as its kubelet.
func kubeletFlags(on target, spec, dir string) []string {
	flags := []string{
		"--k8s-bin-dir=" + on.programs, "--node-name=" + on.agent, "--report-dir=" + dir, "--system-spec-file=" + spec, "--prepull-images=false",
		"--container-runtime-endpoint=unix:///run/containerd/containerd.sock", "--container-runtime-pid-file=",
		"--kubelet-flags=" + strings.TrimSpace("--fail-cgroupv1=false --fail-swap-on=false --cgroup-driver=cgroupfs "+*agentFlags),
	}
	if *gates != "" {
		flags = append(flags, "--feature-gates="+*gates, "--service-feature-gates="+*gates)
	}
	return flags
}
