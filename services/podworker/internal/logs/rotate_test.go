// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/test/fakecri"
)

// Round looks at all logs once, and returns when all is done.
func (r *Rotator) Round(ctx context.Context) {
	s, _ := settingsOf(r.deps.Config())
	r.look(ctx, s, true)
	r.packing.Wait()
}

func TestPlan(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	const rotate = "/l/0.log.20260203-040506"
	limits := Limits{MaxSize: 100, MaxFiles: 3}
	for _, tc := range []struct {
		name        string
		log         live
		rotated     []string
		limits      Limits
		want        Plan
		compressing map[string]bool
	}{
		{"small", live{"/l/0.log", true, 100}, nil, limits, Plan{}, nil},
		{"large", live{"/l/0.log", true, 101}, nil, limits, Plan{Rotate: rotate}, nil},
		{"no limit", live{"/l/0.log", true, 1 << 40}, nil, Limits{-1, 3}, Plan{}, nil},
		{"missing", live{"/l/0.log", false, 0}, nil, limits, Plan{Reopen: true}, nil},
		{
			"compress the last", live{"/l/0.log", true, 101}, []string{"/l/0.log.20260101-000000"}, limits,
			Plan{Compress: []string{"/l/0.log.20260101-000000"}, Rotate: rotate}, nil,
		},
		{
			"too many", live{"/l/0.log", true, 101}, []string{"/l/0.log.20260102-000000", "/l/0.log.20260101-000000.gz"}, limits,
			Plan{Remove: []string{"/l/0.log.20260101-000000.gz"}, Compress: []string{"/l/0.log.20260102-000000"}, Rotate: rotate}, nil,
		},
		{
			"two files only", live{"/l/0.log", true, 101}, []string{"/l/0.log.20260102-000000"}, Limits{100, 2},
			Plan{Remove: []string{"/l/0.log.20260102-000000"}, Rotate: rotate}, nil,
		},
		{
			"left by a kill", live{"/l/0.log", true, 101},
			[]string{"/l/0.log.20260101-000000", "/l/0.log.20260101-000000.gz", "/l/0.log.20260102-000000.tmp", "/l/0.log.20260102-000000.gz.tmp"}, Limits{100, 5},
			Plan{Remove: []string{"/l/0.log.20260101-000000", "/l/0.log.20260102-000000.tmp", "/l/0.log.20260102-000000.gz.tmp"}, Rotate: rotate}, nil,
		},
		{
			"others' files stay", live{"/l/0.log", true, 101},
			[]string{"/l/0.log", "/l/1.log", "/l/0.log.keep", "/l/0.log.20260101-000000.bak", "/l/10.log.20260101-000000"}, Limits{100, 2}, Plan{Rotate: rotate}, nil,
		},
		{
			"twice in a second", live{"/l/0.log", true, 101}, []string{rotate, "/l/0.log.20260203-040507.gz"}, Limits{100, 9},
			Plan{Compress: []string{rotate}, Rotate: "/l/0.log.20260203-040508"}, nil,
		},
		{
			"being compressed", live{"/l/0.log", true, 101},
			[]string{"/l/0.log.20260101-000000.gz", "/l/0.log.20260102-000000", "/l/0.log.20260102-000000.tmp"}, limits,
			Plan{Remove: []string{"/l/0.log.20260101-000000.gz"}, Rotate: rotate}, map[string]bool{"/l/0.log.20260102-000000": true},
		},
		{
			"being compressed and too old", live{"/l/0.log", true, 101},
			[]string{"/l/0.log.20260101-000000", "/l/0.log.20260101-000000.tmp", "/l/0.log.20260102-000000"}, limits,
			Plan{Remove: []string{"/l/0.log.20260101-000000"}, Compress: []string{"/l/0.log.20260102-000000"}, Rotate: rotate},
			map[string]bool{"/l/0.log.20260101-000000": true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := plan(tc.log, tc.rotated, tc.compressing, tc.limits, now); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	cfg := &kubeletconfig.Config{}
	kubeletconfig.SetDefaults(&cfg.Kubelet)
	got, err := settingsOf(cfg)
	if want := (settings{Limits{10 << 20, 5}, 10 * time.Second, 1}); err != nil || got != want {
		t.Errorf("defaults: %+v, %v", got, err)
	}
	cfg.Kubelet.ContainerLogMaxSize = "lots"
	if got, err := settingsOf(cfg); err == nil || got.MaxSize != defaultMaxSize || !strings.Contains(err.Error(), "containerLogMaxSize") {
		t.Errorf("a bad size: %+v, %v", got, err)
	}
}

func TestRotation(t *testing.T) {
	w := newWorld(t)
	id := w.run(0, "trap 'exit 0' TERM; log lines 20; while true; do if test -f /more; then rm /more; log lines 20; echo done; fi; sleep 5ms; done")
	log := filepath.Join(w.dir, "c", "0.log")
	cfg := &kubeletconfig.Config{}
	kubeletconfig.SetDefaults(&cfg.Kubelet)
	cfg.Kubelet.ContainerLogMaxSize, cfg.Kubelet.ContainerLogMaxFiles = "100", ptr(int32(3))
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	rotator := func() *Rotator {
		return NewRotator(RotatorDeps{
			Runtime: w.rc, Running: func() []Container { return []Container{{id, log}} }, Config: func() *kubeletconfig.Config { return cfg },
			Clock: now, Log: slog.New(slog.DiscardHandler),
		})
	}
	r := rotator()
	filled := func(want string) {
		t.Helper()
		if err := w.rt.WaitFor(w.ctx(), func() bool {
			content, err := os.ReadFile(log)
			return err == nil && strings.Contains(string(content), want)
		}); err != nil {
			t.Fatalf("log never had %q: %v", want, err)
		}
	}
	more := func() {
		t.Helper()
		if _, err := w.rc.ExecSync(w.ctx(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"touch", "/more"}}); err != nil {
			t.Fatal(err)
		}
		filled("done")
	}
	more()
	first, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}

	// A runtime that does not reopen keeps its log.
	w.rt.Fail(fakecri.Match{Method: "ReopenContainerLog"}, 1, status.Error(codes.Internal, "no"))
	r.Round(w.ctx())
	if again, err := os.ReadFile(log); err != nil || !strings.HasPrefix(string(again), string(first)) {
		t.Fatalf("after a failed rotation: %v", err)
	}

	r.Round(w.ctx())
	rotated := log + ".20260101-000000"
	if _, err := os.Stat(rotated); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		now.Step(time.Second)
		more()
		r.Round(w.ctx())
	}
	if _, err := os.Stat(rotated); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the oldest is left uncompressed: %v", err)
	}
	if _, err := os.Stat(rotated + gzipSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("more files than allowed: %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(log))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "0.log 0.log.20260101-000001.gz 0.log.20260101-000002" {
		t.Errorf("files: %s", got)
	}
	// What was compressed is what was there.
	packed, err := os.Open(filepath.Join(filepath.Dir(log), "0.log.20260101-000001.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(unpacked); err != nil || !strings.Contains(string(content), "stdout F done\n") {
		t.Errorf("compressed log: %q, %v", content, err)
	}

	// A process that is killed between the new name and the reopening has left no log
	// by that name: the next one has it made. The former one stands still until the end.
	now.Step(time.Second)
	more()
	if err := fault.Set("podworker.rotate=pause"); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(w.ctx())
	killed := make(chan struct{})
	go func(former *Rotator) {
		former.Round(ctx)
		close(killed)
	}(r)
	defer func() {
		end()
		<-killed
	}()
	if err := w.rt.WaitFor(w.ctx(), func() bool { _, err := os.Stat(log); return errors.Is(err, fs.ErrNotExist) }); err != nil {
		t.Fatalf("the log keeps its name: %v", err)
	}
	if err := fault.Set(""); err != nil {
		t.Fatal(err)
	}
	r = rotator()
	r.Round(w.ctx())
	more()

	// A log that was removed is made again.
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	r.Round(w.ctx())
	if _, err := os.Stat(log); err != nil {
		t.Errorf("after a reopen: %v", err)
	}
}

func TestLookAgain(t *testing.T) {
	const mb = 1_000_000
	for _, tc := range []struct {
		size, limit int64
		want        time.Duration
	}{
		{0, 10 * mb, time.Second},
		{5 * mb, 10 * mb, 650 * time.Millisecond},
		{10 * mb, 10 * mb, 150 * time.Millisecond},
		{30 * mb, 10 * mb, glanceSoon},
		{0, 1 * mb, 115 * time.Millisecond},
		{0, 1, glanceSoon},
		{30 * mb, -1, time.Second},
	} {
		if got := lookAgain(tc.size, tc.limit).Round(time.Millisecond); got != tc.want {
			t.Errorf("%d of %d: %v, want %v", tc.size, tc.limit, got, tc.want)
		}
	}
}

// TestLooksAtEachLogInItsTime: one log that is nearly full does not have the others looked
// at, nor the containers listed.
func TestLooksAtEachLogInItsTime(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	running := []Container{{"full", "/l/full"}, {"grows", "/l/grows"}}
	for i := range 100 {
		running = append(running, Container{fmt.Sprint(i), fmt.Sprint("/l/", i)})
	}
	lists := 0
	looks := map[string]int{}
	r := NewRotator(RotatorDeps{Running: func() []Container { lists++; return running }, Clock: now, Log: slog.New(slog.DiscardHandler)})
	r.stale = true
	r.glance = func(path string) (live, error) {
		looks[path]++
		log := live{path: path, exists: true}
		switch path {
		case "/l/full":
			log.size = defaultMaxSize
		case "/l/grows":
			log.size = int64(looks[path])
		}
		return log, nil
	}
	const seconds = 16
	s := settings{Limits: Limits{defaultMaxSize, 5}, interval: 10 * time.Second, workers: 1}
	began := now.Now()
	for round := 0; now.Since(began) < seconds*time.Second; round++ {
		if round == 7 { // a container ends, and another one starts
			running = append(slices.Clone(running[:101]), Container{"new", "/l/new"})
			r.stale = true
		}
		now.SetTime(r.look(t.Context(), s, false))
	}
	if lists != 2 {
		t.Errorf("%d lists", lists)
	}
	// 157 ms from its limit, and then less and less as it does not grow; 1, 2, 4 and 8 s later.
	for path, want := range map[string]int{"/l/full": 7, "/l/grows": seconds, "/l/0": 5, "/l/99": 2, "/l/new": 4} {
		if got := looks[path]; got != want {
			t.Errorf("%d looks at %s, want %d", got, path, want)
		}
	}
}

// TestAQuietLogGrows: it is looked at as often as the kubelet does, and as often as any that
// grows from then on.
func TestAQuietLogGrows(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := settings{Limits: Limits{defaultMaxSize, 5}, interval: 10 * time.Second}
	l, now := watched{}, began
	var pauses []time.Duration
	for _, size := range []int64{1, 1, 1, 1, 1, 1, 5e6, 9e6, 9e6} {
		l.next(now, size, s)
		pauses, now = append(pauses, l.pause.Round(time.Millisecond)), l.due
	}
	want := []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second,
		706 * time.Millisecond, 306 * time.Millisecond, 612 * time.Millisecond,
	}
	if !slices.Equal(pauses, want) {
		t.Errorf("pauses %v, want %v", pauses, want)
	}
}

// TestFastWriter: a container that writes 10 MB/s never has a log of more than
// 1.2 times the limit, nor more files than it may, and no line between the first
// and the last that are kept is lost. Its clock goes by what it has written.
func TestFastWriter(t *testing.T) {
	w := newWorld(t)
	const limit, maxFiles = 10 << 20, 5
	cfg := &kubeletconfig.Config{}
	kubeletconfig.SetDefaults(&cfg.Kubelet) // 10 Mi, 5 files
	id := w.run(0, "trap 'exit 0' TERM; sleep infinity")
	log := filepath.Join(w.dir, "c", "0.log")
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := NewRotator(RotatorDeps{
		Runtime: w.rc, Running: func() []Container { return []Container{{id, log}} }, Config: func() *kubeletconfig.Config { return cfg },
		Clock: now, Log: slog.New(slog.DiscardHandler),
	})
	s, err := settingsOf(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var most int64
	line, wait := 0, glancePeriod
	r.stale = true
	for written, looks := 0, 0; written < 80_000_000; looks++ {
		if looks > 1000 {
			t.Fatalf("%d looks at a log of %d bytes: the next is due in %s", looks, written, wait)
		}
		for part := int(wait.Seconds() * fastest); part > 0; line++ {
			text := fmt.Sprintf("2026-01-01T00:00:00.000000000Z stdout F line %d %s\n", line, strings.Repeat("x", 100_000))
			f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0) // as the runtime has it after a reopen
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(text); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			part, written = part-len(text), written+len(text)
		}
		info, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, info.Size())
		now.Step(wait)
		wait = r.look(w.ctx(), s, false).Sub(now.Now())
	}
	r.packing.Wait()
	if most > limit*12/10 {
		t.Errorf("the log had %d bytes, %.2f times the limit", most, float64(most)/limit)
	}
	files, err := filepath.Glob(log + "*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > maxFiles {
		t.Errorf("files: %v", files)
	}
	slices.Sort(files)
	kept := 0
	for _, file := range append(files[1:], files[0]) { // the live one last
		kept += count(t, file)
	}
	if first := line - kept; first < 0 || !strings.Contains(firstLine(t, files[1]), fmt.Sprintf("line %d ", first)) {
		t.Errorf("%d lines kept of %d, the first is %.60q", kept, line, firstLine(t, files[1]))
	}
}

// content reads a log, compressed or not.
func content(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var from io.Reader = f
	if strings.HasSuffix(file, gzipSuffix) {
		if from, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func count(t *testing.T, file string) int { t.Helper(); return strings.Count(content(t, file), "\n") }

func firstLine(t *testing.T, file string) string {
	t.Helper()
	line, _, _ := strings.Cut(content(t, file), "\n")
	return line
}

// TestCompressFollowsNoLink: names beside a log that lead elsewhere are not written
// through, nor is a log that became one read.
func TestCompressFollowsNoLink(t *testing.T) {
	for _, hard := range []bool{false, true} {
		dir := t.TempDir()
		log, victim := filepath.Join(dir, "0.log.20260102-030405"), filepath.Join(dir, "victim")
		write := func(path, text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(log, "line")
		write(victim, "of somebody else")
		link := os.Symlink
		if hard {
			link = os.Link
		}
		if err := link(victim, log+tmpSuffix); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(compress(log), replace(log)); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(victim); err != nil || string(got) != "of somebody else" {
			t.Errorf("hard %v: the other file holds %q, %v", hard, got, err)
		}
		if info, err := os.Lstat(log + gzipSuffix); err != nil || !info.Mode().IsRegular() {
			t.Errorf("hard %v: %v, %v", hard, info, err)
		}
		if err := os.Symlink(victim, log); err != nil {
			t.Fatal(err)
		}
		if err := compress(log); err == nil {
			t.Error("a link was compressed")
		}
		if _, err := os.Lstat(log); err != nil {
			t.Errorf("what was not compressed is gone: %v", err)
		}
	}
	pipe := filepath.Join(t.TempDir(), "0.log.20260102-030405")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := compress(pipe); err == nil {
		t.Error("a pipe was compressed")
	}
}
