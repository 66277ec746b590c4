// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Reference is a node run by the reference kubelet, built from its published
// module: what Sextant is compared with.
type Reference struct {
	Place
	// Log is the file with the kubelet's output.
	Log string

	binary  string
	args    []string
	process *process
	undo    []func() error
}

// outside are the directories that the kubelet makes wherever its root is.
var outside = []string{"/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/var/log/containers"}

// tunables are what the kubelet writes into the kernel when it may.
var tunables = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// StartReference starts the reference kubelet in a place like a Sextant node's,
// and returns when it answers on its port. o.BusOff and o.Args mean nothing to
// it. It goes with the test, and with it its pods, mounts, cgroups, and what it
// changed outside its directories.
func StartReference(t testing.TB, o NodeOptions) *Reference {
	t.Helper()
	place := newPlace(t, o)
	bin, err := The(t).tool("kubelet", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	r := &Reference{Place: *place, binary: bin, Log: filepath.Join(place.dir, "kubelet.log")}
	// cAdvisor does not ask the configuration where the runtime is.
	r.args = append([]string{"--containerd=" + strings.TrimPrefix(r.Runtime.Endpoint(), "unix://")}, r.flags...)
	t.Cleanup(func() { r.end(t) })
	if err := r.prepare(); err != nil {
		t.Fatal(err)
	}
	r.Up(t)
	return r
}

// Args are the kubelet's flags.
func (r *Reference) Args() []string { return r.args }

// Up starts the kubelet, also after Kill.
func (r *Reference) Up(t testing.TB) {
	t.Helper()
	var err error
	if r.process, err = start("kubelet", r.Log, r.binary, r.args...); err != nil {
		t.Fatal(err)
	}
	err = r.process.ready(t.Context(), 3*time.Minute, func(ctx context.Context) error {
		// Any answer will do: without a client certificate it is a refusal.
		resp, err := Unverified(nil).Do(request(ctx, "https://"+net.JoinHostPort(r.IP, strconv.Itoa(r.Port))+"/healthz"))
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func request(ctx context.Context, url string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err) // an address and a port always make a URL
	}
	return req
}

// Kill ends the kubelet as a crash would; its pods go on.
func (r *Reference) Kill(t testing.TB) {
	t.Helper()
	if err := r.process.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// prepare makes what the kubelet expects and notes how to undo what it does
// outside its directories.
func (r *Reference) prepare() error {
	// It does not make its cgroup root, and looks for it in every hierarchy.
	for _, hierarchy := range cgroupHierarchies() {
		if err := os.MkdirAll(filepath.Join(hierarchy, r.Runtime.CgroupRoot), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range outside {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			r.undo = append(r.undo, func() error { return removeIfEmpty(dir) })
		}
	}
	r.undo = append(r.undo, resetTunables()...)
	return nil
}

// resetTunables is what gives the kernel's tunables the values that they have now.
func resetTunables() (undo []func() error) {
	for _, name := range tunables {
		file := filepath.Join("/proc/sys", name)
		was, err := os.ReadFile(file)
		if err != nil {
			continue // this kernel has none
		}
		undo = append(undo, func() error {
			if now, err := os.ReadFile(file); err != nil || string(now) == string(was) {
				return err
			}
			return os.WriteFile(file, was, 0o644)
		})
	}
	return undo
}

// KeepTunables resets the kernel's tunables, which an agent sets, when the test ends.
func KeepTunables(t testing.TB) {
	undo := resetTunables()
	t.Cleanup(func() {
		for _, f := range undo {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
	})
}

// cgroupHierarchies are the mount points of all of them, of both versions.
func cgroupHierarchies() []string {
	var found []string
	for _, f := range mountFields() {
		if strings.HasPrefix(f[len(f)-3], "cgroup") {
			found = append(found, f[4])
		}
	}
	return found
}

func removeIfEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

func (r *Reference) end(t testing.TB) {
	// Not the test's context: that has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	keep(t, r.Name, r.Log)
	var errs []error
	if r.process != nil {
		errs = append(errs, r.process.kill(ctx))
	}
	errs = append(errs, r.removePods(ctx))
	mounts := traces{dir: r.dir}.mounts()
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mounts[i], err))
		}
	}
	errs = append(errs, r.removeOutside())
	for _, undo := range r.undo {
		errs = append(errs, undo())
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("take the reference kubelet's node down: %v", err)
	}
}

// removePods ends the kubelet's pods, so that nothing holds its mounts.
func (r *Reference) removePods(ctx context.Context) error {
	list, err := r.Runtime.Runtimes.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list.GetItems() {
		_, err := r.Runtime.Runtimes.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		if err == nil {
			_, err = r.Runtime.Runtimes.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeOutside removes the links to this node's logs and the sockets of the
// device manager, whose places are not configurable.
func (r *Reference) removeOutside() error {
	var errs []error
	for _, link := range glob("/var/log/containers/*") {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, r.dir+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	for _, file := range glob("/var/lib/kubelet/device-plugins/*") {
		errs = append(errs, os.Remove(file))
	}
	return errors.Join(errs...)
}
