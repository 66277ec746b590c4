// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// loseNetwork takes the network plugin's configuration from a runtime.
func loseNetwork(t *testing.T, rt *harness.Runtime) {
	t.Helper()
	files := filepath.Join(filepath.Dir(strings.TrimPrefix(rt.Endpoint(), "unix://")), "cni", "net.d", "*")
	found, err := filepath.Glob(files)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v", files, err)
	}
	for _, file := range found {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeground: `sextant up` in the foreground says what the node waits for and when it
// is Ready, and ends with code 0 when it is asked to.
func TestForeground(t *testing.T) {
	rt := harness.StartRuntime(t, harness.V2)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // nothing was accepted
	port := int32(taken.Addr().(*net.TCPAddr).Port)
	for _, c := range []struct {
		name      string
		configure func(*kubeletv1beta1.KubeletConfiguration)
		args      []string
		want      string // in a line
	}{
		{"ready", func(*kubeletv1beta1.KubeletConfiguration) {}, nil, "is Ready after"},
		{"no runtime", func(k *kubeletv1beta1.KubeletConfiguration) {
			k.ContainerRuntimeEndpoint = "unix:///run/no-such-runtime.sock"
		}, nil, "waits for podworker: container runtime: stat /run/no-such-runtime.sock: no such file or directory (is the runtime started, systemctl start containerd? Another socket: --container-runtime-endpoint)"},
		{"port taken", func(k *kubeletv1beta1.KubeletConfiguration) {
			k.HealthzBindAddress, k.HealthzPort = "127.0.0.1", &port
		}, nil, fmt.Sprintf("waits for nodeapi: healthz port: listen tcp 127.0.0.1:%d: bind: address already in use (another program has the port, perhaps a kubelet: ss -ltnp shows it)", port)},
		// The last: the runtime has no network from here on.
		{"no network", func(*kubeletv1beta1.KubeletConfiguration) { loseNetwork(t, rt) }, nil,
			"cni plugin not initialized (set up the network plugin: its files belong in /etc/cni/net.d, its programs in /opt/cni/bin)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := harness.NewNode(t, harness.NodeOptions{Runtime: rt, Configure: c.configure})
			cmd := n.Foreground(t.Context())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			log, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close() //nolint:errcheck // read elsewhere
			cmd.Stderr = log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			late := time.AfterFunc(usual, func() { _ = cmd.Process.Kill() })
			var said []string
			for scan := bufio.NewScanner(out); scan.Scan(); {
				said = append(said, scan.Text())
				if strings.Contains(scan.Text(), c.want) {
					break
				}
			}
			if len(said) == 0 || !strings.Contains(said[len(said)-1], c.want) {
				t.Errorf("no line with %q:\n%s", c.want, strings.Join(said, "\n"))
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, out) // it ends with the process
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v:\n%s", err, harness.Tail(log.Name(), 20))
			}
			late.Stop()
		})
	}
}
