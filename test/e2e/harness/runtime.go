// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/images"
	"github.com/sextant-node/sextant/test/localruntime"
)

// Flavour is a generation of containerd.
type Flavour string

const (
	// Debian is the containerd of Debian 12: 1.6, without container events.
	Debian Flavour = "debian"
	// V17 is containerd 1.7, the long-term release: with container events, and the format of
	// configuration of 1.6.
	V17 Flavour = "v1.7"
	// V2 is the current containerd: 2.x, with container events.
	V2 Flavour = "v2"
)

// Flavours lists the oldest and the newest; a test that is about the runtime runs with each.
func Flavours() []Flavour { return []Flavour{Debian, V2} }

// part is what a flavour is built as (test/env/install.sh); empty for the one of the
// distribution.
func (f Flavour) part() string { return map[Flavour]string{V17: "runtime-1.7", V2: "runtime"}[f] }

// Runtime is a containerd of one test's own.
type Runtime struct {
	*localruntime.Runtime
	// Runtimes and Images are CRI clients as root, past every broker.
	Runtimes runtimeapi.RuntimeServiceClient
	Images   runtimeapi.ImageServiceClient
	// CgroupRoot is the cgroup that this runtime's pods belong below.
	CgroupRoot string

	cfg  localruntime.Config
	conn *grpc.ClientConn
}

// StartRuntime starts a containerd that knows the pause and the hello image and
// pulls registry images from the lab's registry. It ends with the test. Before it starts,
// prepare is given the folder that it is to keep images and layers in.
func StartRuntime(t testing.TB, flavour Flavour, prepare ...func(dir string)) *Runtime {
	t.Helper()
	r := newRuntime(t, flavour)
	for _, f := range prepare {
		r.cfg.Root = r.cfg.Dir + "-images"
		f(r.cfg.Root)
	}
	r.begin(t)
	return r
}

// StartUnsampled is StartRuntime of a containerd that does not read the CPU time of all
// containers each second, for nobody: of a few hundred containers that takes a core.
func StartUnsampled(t testing.TB, flavour Flavour) *Runtime {
	t.Helper()
	r := newRuntime(t, flavour)
	r.cfg.StatsPeriod = "1h"
	r.begin(t)
	return r
}

// startRuntime starts a containerd whose pods have addresses of some families.
func startRuntime(t testing.TB, flavour Flavour, families []corev1.IPFamily) *Runtime {
	t.Helper()
	r := newRuntime(t, flavour)
	switch {
	case len(families) > 1:
		r.cfg.Families = localruntime.DualStack
	case families[0] == corev1.IPv6Protocol:
		r.cfg.Families = localruntime.IPv6
	}
	if r.cfg.Families != localruntime.IPv4 {
		The(t).seen.Add(string(r.cfg.Families))
	}
	r.begin(t)
	return r
}

// newRuntime is one that has not been started.
func newRuntime(t testing.TB, flavour Flavour) *Runtime {
	t.Helper()
	lab := The(t)
	n := lab.next()
	cfg := localruntime.Config{
		Dir:         filepath.Join(lab.Dir, "rt"+n),
		Bridge:      lab.ID + "b" + n,
		SocketGID:   runtimeGID,
		CgroupRoots: []string{lab.cgroupRoot()},
	}
	if part := flavour.part(); part != "" {
		p, err := lab.tool(part, "containerd")
		if err != nil {
			t.Fatal(err)
		}
		cfg.BinDir = filepath.Dir(p)
	}
	return &Runtime{cfg: cfg, CgroupRoot: cfg.CgroupRoots[0]}
}

// begin starts it for the first time; it ends with the test.
func (r *Runtime) begin(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		keep(t, filepath.Base(r.cfg.Dir), filepath.Join(r.cfg.Dir, "containerd.log"))
		// Not the test's context: that has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if r.conn != nil {
			_ = r.conn.Close() // only reads and finished calls
		}
		if err := localruntime.Teardown(ctx, r.cfg); err != nil {
			t.Errorf("take the runtime down: %v", err)
		}
	})
	r.ensure(t)
	for _, ref := range []string{images.Pause, images.Hello} {
		if err := r.ImportImage(t.Context(), The(t).Archive(t, ref), ref); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.SetRegistry(RegistryHost, StartRegistry(t).URL()); err != nil {
		t.Fatal(err)
	}
}

func (r *Runtime) ensure(t testing.TB) {
	t.Helper()
	rt, err := localruntime.Ensure(t.Context(), r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Runtime = rt
	if r.conn != nil {
		return // it finds the new daemon by itself
	}
	if r.conn, err = localruntime.Dial(rt.Endpoint()); err != nil {
		t.Fatal(err)
	}
	r.Runtimes = runtimeapi.NewRuntimeServiceClient(r.conn)
	r.Images = runtimeapi.NewImageServiceClient(r.conn)
	version, err := r.Runtimes.Version(t.Context(), &runtimeapi.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	The(t).seen.Add(version.GetRuntimeName() + " " + version.GetRuntimeVersion())
}

// Kill ends containerd as a power cut would; its containers go on.
func (r *Runtime) Kill(t testing.TB) {
	t.Helper()
	if err := unix.Kill(r.PID(), unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatalf("kill containerd: %v", err)
	}
}

// crash ends containerd and all that runs in it, as a loss of power does.
func (r *Runtime) crash(t testing.TB) {
	t.Helper()
	if err := localruntime.Crash(t.Context(), r.cfg); err != nil {
		t.Fatal(err)
	}
}

// Restart brings containerd back after Kill or a loss of power, or does nothing.
func (r *Runtime) Restart(t testing.TB) {
	t.Helper()
	r.ensure(t)
}
