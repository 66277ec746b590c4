// SPDX-License-Identifier: Apache-2.0

// Command demo runs a node to try, for `make up`: `sextant up` on a containerd of its own, or on
// one that is there, with example pods.
//
// It owns one folder, /var/lib/sextant-demo, with everything the node writes but its
// sockets. It sets nothing of the machine: no kernel tunables, no chains of iptables.
// `demo down` ends the node and removes every trace of both, from any state: up that was
// killed half-way, a machine that was started again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/mounts"
	"github.com/sextant-node/sextant/test/localruntime"
)

const (
	// uidBase is the uid of the first service; the others follow.
	uidBase    = 64200
	cgroupRoot = "/sextant-demo"
)

// kubeletYAML is the node's KubeletConfiguration: it is willing to run on any machine. On one
// whose disk is nearly full, images that nothing uses would go, and containerd 1.6 does not pin
// that of sandboxes, which can be had from nowhere else.
const kubeletYAML = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %[1]s/pod-logs/pods
staticPodPath: %[1]s/manifests
imageGCHighThresholdPercent: 100
containerRuntimeEndpoint: %[2]s
cgroupRoot: ` + cgroupRoot + `
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
address: 127.0.0.1
port: %[3]d
healthzPort: %[4]d
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
`

// demo is a node to try.
type demo struct {
	dir, program, images, manifests string
	endpoint                        string // of a runtime that is there; empty for one of its own
	pods                            int
}

func main() {
	var d demo
	flag.StringVar(&d.dir, "dir", "/var/lib/sextant-demo", "the node's folder, removed by down")
	flag.StringVar(&d.program, "sextant", "bin/sextant", "the program")
	flag.StringVar(&d.images, "images", "bin/images", "folder of image archives for the containerd of its own")
	flag.StringVar(&d.manifests, "manifests", "deploy/examples", "folder of the first manifests")
	flag.StringVar(&d.endpoint, "container-runtime-endpoint", "", "a runtime that is there, instead of a containerd of its own")
	flag.IntVar(&d.pods, "wait-pods", 1, "wait until this many pods are ready")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "demo [flags] up|down")
		flag.PrintDefaults()
	}
	flag.Parse()
	err := d.run(flag.Arg(0))
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode()) // it has said why
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func (d *demo) run(verb string) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	switch verb {
	case "up":
		return d.up(ctx)
	case "down":
		return d.down(ctx)
	default:
		flag.Usage()
		return fmt.Errorf("%q is neither up nor down", verb)
	}
}

// up starts the node, or starts it again with its pods.
func (d *demo) up(ctx context.Context) error {
	manifests := filepath.Join(d.dir, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		return err
	}
	if err := copyMissing(d.manifests, manifests); err != nil {
		return fmt.Errorf("-manifests: %w", err)
	}
	endpoint := d.endpoint
	if endpoint == "" {
		began := time.Now()
		rt, err := localruntime.Ensure(ctx, d.runtime())
		if err != nil {
			return err
		}
		if err := d.load(ctx, rt); err != nil {
			return err
		}
		endpoint = rt.Endpoint()
		fmt.Printf("%-26s %-7s %6.1f s  %s, %s\n", "containerd", "ok", time.Since(began).Seconds(), rt.Version(), endpoint)
	}
	file := filepath.Join(d.dir, "kubelet.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, kubeletYAML, d.dir, endpoint, freePort(10250), freePort(10248)), 0o644); err != nil {
		return err
	}
	root := filepath.Join(d.dir, "kubelet")
	err := d.sextant(ctx, "up", "--detach", "--wait-pods="+strconv.Itoa(d.pods), "--keep-kernel-tunables",
		"--uid-base="+strconv.Itoa(uidBase), "--state-dir="+filepath.Join(d.dir, "state"),
		"--config="+file, "--root-dir="+root, "--cert-dir="+filepath.Join(root, "pki"))
	if err != nil {
		return err
	}
	fmt.Printf(next, d.program, filepath.Join(d.manifests, "more", "web.yaml"), manifests)
	return nil
}

// next is what to do with a node that is up.
const next = `
Look at it, as root, without kubectl:
  %[1]s pods -o yaml           curl http://IP:8080/ asks the pod at its IP
  %[1]s logs hello -f
  %[1]s why hello
  %[1]s watch
A second pod, with an init container, a sidecar, volumes and three probes; when its
manifest goes, so does the pod:
  cp %[2]s %[3]s/
End it all: make down
`

// down ends the node and removes it.
func (d *demo) down(ctx context.Context) error {
	runtime := d.runtime()
	_, err := os.Stat(runtime.Dir)
	private := err == nil
	if private {
		// The node removes its pods through the runtime. Without one Teardown removes them.
		if _, err := localruntime.Ensure(ctx, runtime); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
		}
	}
	err = d.sextant(ctx, "down", "--purge")
	if private {
		err = errors.Join(err, localruntime.Teardown(ctx, runtime))
	}
	return errors.Join(err, mounts.RemoveTree(d.dir))
}

func (d *demo) sextant(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, d.program, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// runtime is the containerd of its own, which podworker alone may use.
func (d *demo) runtime() localruntime.Config {
	return localruntime.Config{
		Dir: filepath.Join(d.dir, "containerd"), CgroupRoots: []string{cgroupRoot},
		SocketGID: uidBase + slices.Index(house.Services(), house.PodWorker),
	}
}

// load imports the images that the runtime does not have.
func (d *demo) load(ctx context.Context, rt *localruntime.Runtime) error {
	archives, err := filepath.Glob(filepath.Join(d.images, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		name := "sextant.local/" + strings.TrimSuffix(filepath.Base(archive), ".tar") + ":v1"
		if has, err := rt.HasImage(ctx, name); err == nil && has {
			continue
		}
		if err := rt.ImportImage(ctx, archive, name); err != nil {
			return err
		}
	}
	return nil
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

// copyMissing copies the files of a folder that another does not have: the user may have
// changed the others.
func copyMissing(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		target := filepath.Join(to, e.Name())
		if _, err := os.Stat(target); e.IsDir() || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
