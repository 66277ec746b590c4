// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/compat/seen"
	"github.com/sextant-node/sextant/test/images"
	"github.com/sextant-node/sextant/test/ports"
)

// labPrefix begins the name of everything that a lab puts on the machine.
const labPrefix = "sxt"

// labID is short enough for interface names; the directory alone determines it.
func labID(dir string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(dir))
	return fmt.Sprintf("%s%06x", labPrefix, h.Sum32()&0xffffff)
}

// runtimeGID is the group that may open the sockets of the labs' runtimes.
const runtimeGID = 64100

// Lab is what the tests of one binary share.
type Lab struct {
	// Dir holds everything the lab writes.
	Dir string
	// ID begins the names of the lab's cgroups and interfaces.
	ID string
	// Source is the root of the main module.
	Source string
	// Cache is where test/env/install.sh puts the real parts.
	Cache string

	// opened is when the lab was made, load the machine's then, commit the source's: what a
	// run writes into the tree itself does not count.
	opened  time.Time
	load    float64
	commit  string
	seen    seen.Notes
	counter atomic.Int64
	network *network

	mu       sync.Mutex
	cleanups []func(context.Context) error

	registry     lazy[*Registry]
	controlPlane lazy[*ControlPlane]
	sextant      lazy[string]
	archives     map[string]*lazy[string]
}

// lazy is a shared part, made by whoever needs it first.
type lazy[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (l *lazy[T]) get(t testing.TB, what string, build func() (T, error)) T {
	t.Helper()
	l.once.Do(func() { l.value, l.err = build() })
	if l.err != nil {
		t.Fatalf("%s: %v", what, l.err)
	}
	return l.value
}

var current *Lab

// The returns the lab of this test binary.
func The(t testing.TB) *Lab {
	t.Helper()
	if current == nil {
		t.Fatal("no lab: TestMain must call harness.Main")
	}
	return current
}

// Main runs the tests of a binary inside a lab and ends the process. It fails
// when the lab cannot be made, and when anything of it is left afterwards.
func Main(m *testing.M) {
	bootStep()
	lab, err := open()
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		os.Exit(1)
	}
	current = lab
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		// A test that ends here fails without a message of its own.
		fmt.Fprintln(os.Stderr, "harness: interrupted by a signal:", <-interrupted)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := sweepLab(ctx, lab.Dir); err != nil {
			fmt.Fprintln(os.Stderr, "harness: interrupted:", err)
		}
		os.Exit(130)
	}()
	code := m.Run()
	if err := lab.close(); err != nil {
		fmt.Fprintln(os.Stderr, "harness: taking the lab down:", err)
		code = 1
	}
	if code == 0 {
		if err := lab.record(); err != nil {
			fmt.Fprintln(os.Stderr, "harness: what was seen:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func open() (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root: it starts container runtimes")
	}
	source, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	if err := sweep(context.Background()); err != nil {
		return nil, fmt.Errorf("clean up after an earlier run: %w", err)
	}
	dir, err := os.MkdirTemp("", labPrefix+"-")
	if err != nil {
		return nil, err
	}
	// The services of a node run under uids of their own and pass through here.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	load, err := loadNow()
	if err != nil {
		return nil, err
	}
	lab := &Lab{
		opened:   time.Now(),
		load:     load,
		commit:   seen.Commit(source),
		Dir:      dir,
		ID:       labID(dir),
		Source:   source,
		Cache:    cacheDir(),
		archives: map[string]*lazy[string]{},
	}
	for _, ref := range []string{images.Pause, images.Hello, images.Busybox} {
		lab.archives[ref] = &lazy[string]{}
	}
	if err := writeOwner(dir); err != nil {
		return nil, err
	}
	lab.network = newNetwork(lab.ID)
	lab.atEnd(func(context.Context) error { return lab.network.remove() })
	return lab, nil
}

// atEnd registers what takes a shared part down; the last registered runs first.
func (l *Lab) atEnd(f func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

// port is a TCP port at an address that nothing else gets while the lab lasts, also
// while the server it is for is stopped.
func (l *Lab) port(ip string) (int, error) {
	port, release, err := ports.Reserve(ip)
	if err == nil {
		l.atEnd(func(context.Context) error { return release() })
	}
	return port, err
}

func (l *Lab) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l.mu.Lock()
	cleanups := l.cleanups
	l.cleanups = nil
	l.mu.Unlock()
	var errs []error
	for i := len(cleanups) - 1; i >= 0; i-- {
		errs = append(errs, cleanups[i](ctx))
	}
	// What is left is reported, and then removed all the same.
	errs = append(errs, nothingLeft(ctx, l.Dir, l.ID))
	errs = append(errs, sweepLab(ctx, l.Dir))
	return errors.Join(errs...)
}

// next numbers things within the lab.
func (l *Lab) next() string { return strconv.FormatInt(l.counter.Add(1), 10) }

// CgroupRoot names a cgroup for one node, below the root of every hierarchy.
func (l *Lab) cgroupRoot() string { return "/" + l.ID + "-" + l.next() }

// Archive returns the path of an image archive, built once per binary.
func (l *Lab) Archive(t testing.TB, ref string) string {
	t.Helper()
	a, ok := l.archives[ref]
	if !ok {
		t.Fatalf("no such image: %s", ref)
	}
	return a.get(t, "build image", func() (string, error) {
		short, _, _ := strings.Cut(filepath.Base(ref), ":")
		file := filepath.Join(l.Dir, short+".tar")
		return file, images.Builder{Source: l.Source}.Save(context.Background(), ref, file)
	})
}

// Binary returns the path of the program as it ships, built by deploy/build.sh once
// per test binary, or copied from SEXTANT_BINARY, which that script has built already.
// It lies in a folder that the services' users may enter.
func (l *Lab) Binary(t testing.TB) string {
	t.Helper()
	return l.sextant.get(t, "build sextant", func() (string, error) {
		out := filepath.Join(l.Dir, "sextant")
		built := os.Getenv("SEXTANT_BINARY")
		if built == "" {
			return out, l.build(out)
		}
		program, err := os.ReadFile(built)
		return out, errors.Join(err, os.WriteFile(out, program, 0o755))
	})
}

// BuildVersion builds sextant from a source tree by the rule of this one, as a
// version of that name, and returns the path of the program.
func (l *Lab) BuildVersion(t testing.TB, source, version string) string {
	t.Helper()
	out := filepath.Join(l.Dir, "sextant-"+version)
	if err := l.build(out, version, source); err != nil {
		t.Fatalf("build %s in %s: %v", version, source, err)
	}
	return out
}

func (l *Lab) build(args ...string) error {
	msg, err := exec.Command(filepath.Join(l.Source, "deploy", "build.sh"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, msg)
	}
	return nil
}

// Tool is the path of a program that test/env/install.sh has built as part of a
// part.
func (l *Lab) Tool(t testing.TB, part, name string) string {
	t.Helper()
	p, err := l.tool(part, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (l *Lab) tool(part, name string) (string, error) {
	p := filepath.Join(l.Cache, "bin", part, name)
	if _, err := os.Stat(p); err != nil {
		return "", fmt.Errorf("%s is not there, run test/env/install.sh: %w", name, err)
	}
	return p, nil
}

func cacheDir() string {
	if d := os.Getenv("SEXTANT_CACHE"); d != "" {
		return d
	}
	if d, err := os.UserCacheDir(); err == nil {
		return filepath.Join(d, "sextant")
	}
	return filepath.Join(os.TempDir(), "sextant-cache")
}

// moduleRoot is the directory of the main module, above the test's.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "test", "env", "install.sh")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside the repository", dir)
		}
	}
}

// owner says which test process a lab belongs to.
type owner struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

const ownerFile = "owner.json"

func writeOwner(dir string) error {
	b, err := json.Marshal(owner{os.Getpid(), startTime(os.Getpid())})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ownerFile), b, 0o644)
}

// startTime is field 22 of /proc/PID/stat, or "" when no such process runs.
func startTime(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return "" // ended, and only its parent does not know
	}
	return f[19]
}

// sweep removes the labs of test processes that are gone.
func sweep(ctx context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), labPrefix+"-*", ownerFile))
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range dirs {
		var o owner
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its owner was faster
		}
		if err != nil || json.Unmarshal(b, &o) != nil {
			continue // being written
		}
		if s := startTime(o.PID); s != "" && s == o.Start {
			continue
		}
		errs = append(errs, sweepLab(ctx, filepath.Dir(f)))
	}
	return errors.Join(errs...)
}
