// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// startLimit bounds the wait for a new containerd to answer on CRI. A cold start
// on a busy two-core machine takes about two seconds.
const startLimit = 60 * time.Second

// adoptLimit bounds the wait for a containerd that runs already; one that does
// not answer for that long is replaced, which its containers survive.
const adoptLimit = 15 * time.Second

// marker is kept in the directory: it marks the directory as ours and holds what
// must not change while pods run.
type marker struct {
	Subnet string `json:"subnet"`
	Bridge string `json:"bridge"`
	Socket string `json:"socket"`
}

// Runtime is a containerd that answers on CRI.
type Runtime struct {
	cfg     Config
	bin     binaries
	version Version
	subnet  string
	proc    process

	importing sync.Mutex
}

// Endpoint is the runtime's address in the form the kubelet's
// --container-runtime-endpoint has: unix:///….
func (r *Runtime) Endpoint() string { return "unix://" + r.cfg.Socket }

// Version is the release of the containerd in use.
func (r *Runtime) Version() Version { return r.version }

// CDIDir is where the runtime looks for CDI devices (from containerd 2.0 on).
func (r *Runtime) CDIDir() string { return r.cfg.cdiDir() }

// Bridge is the name of the interface the pods hang on.
func (r *Runtime) Bridge() string { return r.cfg.Bridge }

// PID is the process id of containerd.
func (r *Runtime) PID() int { return r.proc.PID }

// Ensure returns the containerd of cfg.Dir, answering on CRI: the running one if
// there is one, else a new one. It fails with the end of containerd's log when
// the daemon does not come up.
func Ensure(ctx context.Context, cfg Config) (*Runtime, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	r := &Runtime{cfg: cfg}
	if r.bin, err = cfg.findBinaries(); err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	if r.version, err = detectVersion(ctx, r.bin.containerd); err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	m, err := cfg.claimDir()
	if err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	if cfg.Subnet == "" {
		cfg.Subnet = m.Subnet
	}
	if r.subnet, err = cfg.reserveNetwork(); err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	if err := writeJSON(cfg.markerFile(), marker{r.subnet, cfg.Bridge, cfg.Socket}); err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	if r.proc = readProcess(cfg.pidFile()); r.proc.alive() {
		wait, cancel := context.WithTimeout(ctx, adoptLimit)
		err := poll(wait, func() bool { return !r.proc.alive() || answering(wait, cfg.Socket) == nil })
		cancel()
		if err == nil && r.proc.alive() {
			return r, nil
		}
	}
	if err := r.launch(ctx); err != nil {
		return nil, fmt.Errorf("local runtime: %w", err)
	}
	return r, nil
}

// readMarker returns what Ensure noted; a damaged note counts as an empty one.
func (c Config) readMarker() (marker, error) {
	b, err := os.ReadFile(c.markerFile())
	if err != nil {
		return marker{}, err
	}
	var m marker
	if err := json.Unmarshal(b, &m); err != nil {
		return marker{}, nil //nolint:nilerr // it is written again
	}
	return m, nil
}

// claimDir creates the directory, or recognises it as one of ours, and returns
// what an earlier start noted there.
func (c Config) claimDir() (marker, error) {
	m, err := c.readMarker()
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	if len(entries) > 0 {
		return m, fmt.Errorf("invalid Dir: %s is not empty and has no %s", c.Dir, filepath.Base(c.markerFile()))
	}
	// The group of the socket must be able to reach it.
	if err := os.MkdirAll(c.Dir, 0o711); err != nil {
		return m, err
	}
	if err := os.Chmod(c.Dir, 0o711); err != nil {
		return m, err
	}
	return m, os.MkdirAll(filepath.Dir(c.Socket), 0o711)
}

// launch replaces whatever is left of an earlier daemon by a new one and waits
// until it answers.
func (r *Runtime) launch(ctx context.Context) error {
	if err := r.proc.stop(ctx, 5*time.Second); err != nil {
		return err
	}
	if err := r.writeFiles(); err != nil {
		return err
	}
	for _, s := range []string{r.cfg.Socket, r.cfg.Socket + ".ttrpc"} {
		if err := os.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	proc, exited, err := r.cfg.start(r.bin)
	if err != nil {
		return err
	}
	r.proc = proc
	r.cfg.Logger.InfoContext(ctx, "containerd started", "version", r.version.String(), "pid", proc.PID, "socket", r.cfg.Socket)
	wait, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("containerd does not answer within %s", startLimit))
	defer cancel()
	var last error
	err = poll(wait, func() bool {
		select {
		case <-exited:
			cancel()
			return false
		default:
		}
		if last = answering(wait, r.cfg.Socket); status.Code(last) == codes.Unimplemented {
			// It serves only after every plugin was loaded: CRI will not come.
			cancel()
		}
		return last == nil
	})
	if err != nil {
		switch {
		case !proc.alive():
			err = errors.New("containerd ended at once")
		case status.Code(last) == codes.Unimplemented:
			err = errors.New("containerd runs without its CRI plugin")
		}
		return fmt.Errorf("%w (%w); its log ends:\n%s", err, last, tail(r.cfg.logFile(), 15))
	}
	return nil
}

func (r *Runtime) writeFiles() error {
	c := r.cfg
	for _, d := range []string{c.root(), c.state(), c.cdiDir(), c.certsDir(), c.cniDataDir()} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return err
		}
	}
	if err := c.writeCNI(r.subnet); err != nil {
		return err
	}
	text, err := renderConfig(r.version, settings{
		Root:          c.root(),
		State:         c.state(),
		Socket:        c.Socket,
		SocketGID:     c.SocketGID,
		SandboxImage:  c.SandboxImage,
		CNIBinDir:     r.bin.cniDir,
		CNIConfDir:    c.cniConfDir(),
		CDIDir:        c.cdiDir(),
		CertsDir:      c.certsDir(),
		OptDir:        filepath.Join(c.Dir, "opt"),
		Runc:          r.bin.runc,
		RuncRoot:      filepath.Join(c.state(), "runc"),
		Snapshotter:   snapshotterFor(c.root()),
		RestrictOOM:   !canLowerOOMScore(),
		SystemdCgroup: c.SystemdCgroup,
		StatsPeriod:   c.StatsPeriod,
		LogLevel:      c.LogLevel,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(c.configFile(), []byte(text), 0o644)
}

// snapshotterFor chooses overlayfs, except on overlayfs itself, which cannot be
// stacked: inside a container the images are copied instead.
func snapshotterFor(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err == nil && s.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native"
	}
	return "overlayfs"
}

// Dial connects to a CRI socket. The connection is lazy; the caller closes it.
func Dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+strings.TrimPrefix(socket, "unix://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
}

// answering returns nil once both conditions of the runtime, runtime and network,
// hold.
func answering(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := Dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	s, err := cri.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range s.GetStatus().GetConditions() {
		if !c.GetStatus() && (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) {
			return fmt.Errorf("%s does not hold: %s: %s", c.GetType(), c.GetReason(), c.GetMessage())
		}
	}
	return nil
}

// tail returns the last n lines of a file, each cut to a readable length.
func tail(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		lines[i] = l[:min(len(l), 300)]
	}
	return strings.Join(lines, "\n")
}
