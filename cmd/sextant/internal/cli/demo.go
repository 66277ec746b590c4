package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// demoConfig is what the demo node is configured with: below its own state
// directory, and willing to run on any machine.
const demoConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %[1]s/pod-logs/pods
staticPodPath: %[1]s/manifests
containerRuntimeEndpoint: %[2]s
cgroupRoot: /sextant-demo
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
address: 127.0.0.1
port: %[3]d
healthzPort: %[4]d
failCgroupV1: false
failSwapOn: false
`

// demo lays out a node that can be thrown away and returns the kubelet flags it
// runs with.
func demo(u *upFlags, flags *kubeconf.Flags) ([]string, error) {
	state, err := filepath.Abs(u.state)
	if err != nil {
		return nil, err
	}
	manifests := filepath.Join(state, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		return nil, err
	}
	if u.examples != "" {
		if err := copyManifests(u.examples, manifests); err != nil {
			return nil, fmt.Errorf("--demo-manifests: %w", err)
		}
	}
	endpoint := "unix://" + filepath.Join(state, "containerd", "containerd.sock")
	file := filepath.Join(state, "kubelet.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, demoConfig, state, endpoint, freePort(10250), freePort(10248)), 0o644); err != nil {
		return nil, err
	}
	root := filepath.Join(state, "kubelet")
	added := []string{"--root-dir=" + root, "--cert-dir=" + filepath.Join(root, "pki")}
	if !flags.Said("config") {
		added = append(added, "--config="+file)
	}
	return added, nil
}

// freePort is the kubelet's port, or any when a kubelet has it already.
func freePort(usual int) int {
	for _, port := range []int{usual, 0} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		addr, ok := l.Addr().(*net.TCPAddr)
		if l.Close() == nil && ok {
			return addr.Port
		}
	}
	return usual
}

func copyManifests(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		target := filepath.Join(to, e.Name())
		if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
			continue // the user may have changed it
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
