// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDetachedNode: oomScoreAdj and maxOpenFiles are those of a node in the background, too.
// It has processes, mounts and cgroups of its own, which end with the test.
func TestDetachedNode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start a node")
	}
	dir := filepath.Dir(copied(t))
	text := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 500
maxOpenFiles: 5000
makeIPTablesUtilChains: false
enableServer: false
healthzPort: 0
podLogsDir: %[1]s/logs/pods
containerRuntimeEndpoint: unix://%[1]s/none.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`, dir)
	if err := os.WriteFile(filepath.Join(dir, "kubelet.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `mount --make-rprivate / && mount -t tmpfs none /sys/fs/cgroup && cd "$1" || exit
./sextant up --detach --timeout=1ms --keep-kernel-tunables --run-dir="$1/run" --state-dir="$1/state" --root-dir="$1/kubelet" --cert-dir="$1/pki" --config="$1/kubelet.yaml" >said 2>&1
tries=0
until [ -s run/supervisor.pid ]; do
	tries=$((tries + 1)); [ $tries -lt 200 ] || { cat said; exit 1; }
	sleep 0.1
done
read -r pid start <run/supervisor.pid
cat "/proc/$pid/oom_score_adj"; sed -n 's/^Max open files *\([0-9]*\) .*/\1/p' "/proc/$pid/limits"`
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", script, "sh", dir)
	cmd.Env = append(os.Environ(), program+"=1")
	out, err := cmd.CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || strings.Join(got, " ") != "500 5000" {
		t.Errorf("a score and a limit of %q, %v; want 500 and 5000", out, err)
	}
	if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left over: %v", err)
	}
}
