// SPDX-License-Identifier: Apache-2.0

package child_test

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/test/stallfs"
	"github.com/sextant-node/sextant/test/volumetest"
)

func TestMain(m *testing.M) {
	volumetest.Child(func(string) error {
		return child.Serve(os.Stdin, os.Stdout, child.Steps{
			"pid":  child.Step(func(string) (any, error) { return os.Getpid(), nil }),
			"fail": child.Step(func(text string) (any, error) { return nil, errors.New(text) }),
			"die":  child.Step(func(code int) (any, error) { os.Exit(code); return nil, nil }),
			"stat": child.Step(func(path string) (any, error) { _, err := os.Stat(path); return nil, err }),
		})
	})
	os.Exit(m.Run())
}

func pool(t *testing.T, freed func()) *child.Pool {
	p := child.NewPool(child.Config{Command: volumetest.Command(""), Freed: freed, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(p.Close)
	return p
}

// do is a step with time enough on any machine.
func do(p *child.Pool, step, on string, args, result any) error {
	return p.Do(child.Task{Step: step, On: on, Args: args, Limit: time.Minute}, result)
}

func TestAnswers(t *testing.T) {
	p := pool(t, nil)
	var first, second int
	if err := errors.Join(do(p, "pid", "x", "", &first), do(p, "pid", "y", "", &second)); err != nil {
		t.Fatal(err)
	}
	if first != second || first == os.Getpid() {
		t.Errorf("processes %d and %d, want one other than this", first, second)
	}
	for step, want := range map[string]string{"fail": "some text", "nothing": `no step "nothing"`} {
		if err := do(p, step, "x", "some text", nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", step, err, want)
		}
	}
	if err := do(p, "pid", "x", 7, nil); err == nil || !strings.Contains(err.Error(), "cannot unmarshal") {
		t.Errorf("wrong arguments: %v", err)
	}
	if err := do(p, "die", "the disk", 3, nil); err == nil || !strings.HasPrefix(err.Error(), "die the disk: its process ended") {
		t.Errorf("a child that died: %v", err)
	}
	if err := do(p, "pid", "x", "", &second); err != nil || second == first {
		t.Errorf("after that: %d, %v", second, err)
	}
}

func TestNoCommand(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	p := child.NewPool(child.Config{Command: func() *exec.Cmd { return exec.Command(none) }, Log: slog.New(slog.DiscardHandler)})
	if err := do(p, "pid", "x", "", nil); err == nil || !strings.HasPrefix(err.Error(), "start of a child: ") {
		t.Errorf("%v", err)
	}
}

// TestASlowStart has children that take longer to start than a step usually takes:
// that is the machine's fault, and nobody takes the place for one that hangs.
func TestASlowStart(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	command := volumetest.Command("")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Now())
	var begun atomic.Int32
	p := child.NewPool(child.Config{Clock: clock, Command: func() *exec.Cmd {
		begun.Add(1)
		c := command()
		late := exec.Command("sh", "-c", `read line < "$0"; exec "$1"`, gate, self)
		late.Env = c.Env
		return late
	}, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(p.Close)
	results := make(chan error, 2)
	step := func() { results <- do(p, "pid", "x", "", nil) }
	go step()
	var open *os.File
	eventually(t, "the first child is being started", func() bool {
		open, err = os.OpenFile(gate, os.O_WRONLY|unix.O_NONBLOCK, 0) // fails while none reads
		return err == nil
	})
	defer open.Close()
	read, err := os.OpenFile(gate, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()           // a line that is written before the second child reads stays
	clock.Step(10 * time.Second) // longer than a step is waited for
	go step()
	eventually(t, "the second begins, or is refused", func() bool { return begun.Load() == 2 || len(results) > 0 })
	for range 2 {
		if _, err := open.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestAFileSystemThatStopsAnswering loses one process to it, however often it is
// tried, and has it back when the file system answers again.
func TestAFileSystemThatStopsAnswering(t *testing.T) {
	dead, freed := stallfs.Mount(t), make(chan struct{}, 16)
	p := pool(t, func() { freed <- struct{}{} })
	folder := filepath.Join(dead.Dir, "folder")
	if err := do(p, "stat", folder, folder, nil); err != nil {
		t.Fatal(err)
	}
	dead.Stall()
	var stuck, again *child.Stuck
	err := p.Do(child.Task{Step: "stat", On: folder, Place: dead.Dir, Args: folder, Limit: 2 * time.Second}, nil)
	if !errors.As(err, &stuck) || stuck.PID == 0 {
		t.Fatalf("%v", err)
	}
	eventually(t, "the process waits in the kernel", func() bool { return inKernel(t, stuck.PID) })
	for range 3 {
		err := p.Do(child.Task{Step: "stat", On: dead.Dir, Args: dead.Dir, Limit: time.Minute}, nil)
		if !errors.As(err, &again) || again != stuck || err.Error() != stuck.Error() {
			t.Errorf("tried again: %v", err)
		}
	}
	if err := do(p, "stat", "/", "/", nil); err != nil {
		t.Errorf("another place: %v", err)
	}
	if lost := p.Lost(); len(lost) != 1 || lost[0].PID != stuck.PID {
		t.Errorf("lost: %v", lost)
	}
	dead.Go()
	select {
	case <-freed:
	case <-time.After(time.Minute):
		t.Fatal("not freed")
	}
	if err := do(p, "stat", dead.Dir, folder, nil); err != nil {
		t.Errorf("it answers again: %v", err)
	}
	if lost := p.Lost(); len(lost) != 0 {
		t.Errorf("lost: %v", lost)
	}
}

// TestManyStepsOnAPlaceThatDoesNotAnswer: however many begin there at once, it costs few
// processes, and the others are told.
func TestManyStepsOnAPlaceThatDoesNotAnswer(t *testing.T) {
	dead, p := stallfs.Mount(t), pool(t, nil)
	dead.Stall()
	results := make(chan error, 20)
	for i := range cap(results) {
		go func() {
			folder := filepath.Join(dead.Dir, strconv.Itoa(i))
			results <- p.Do(child.Task{Step: "stat", On: folder, Place: dead.Dir, Args: folder, Limit: 3 * time.Second}, nil)
		}()
	}
	var stuck *child.Stuck
	for range cap(results) {
		if err := <-results; !errors.As(err, &stuck) {
			t.Errorf("%v", err)
		}
	}
	if n := len(p.Lost()); n != 1 && n != 2 {
		t.Errorf("%d processes are lost, want one or two", n)
	}
	dead.Go()
}

// TestAStepThatTakesItsTime keeps nobody from its place but others of its kind: one that hangs
// there costs one process. When its limit is over, the place does not answer.
func TestAStepThatTakesItsTime(t *testing.T) {
	dead := stallfs.Mount(t)
	clock := clocktesting.NewFakeClock(time.Now())
	p := child.NewPool(child.Config{Clock: clock, Command: volumetest.Command(""), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(p.Close)
	long := func(path string) error {
		return p.Do(child.Task{Step: "stat", On: path, Place: dead.Dir, Args: path, Limit: time.Hour, Long: true}, nil)
	}
	dead.Stall()
	result := make(chan error, 1)
	go func() { result <- long(filepath.Join(dead.Dir, "folder")) }()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	var stuck *child.Stuck
	for limit := time.Now().Add(time.Minute); !errors.As(long("/"), &stuck); <-again.C {
		if clock.Step(2 * time.Second); time.Now().After(limit) {
			t.Fatal("another of its kind is not kept from the place")
		}
	}
	if err := do(p, "pid", dead.Dir, "", nil); err != nil {
		t.Errorf("another step is kept from the place: %v", err)
	}
	// One that is killed before it has asked is not lost.
	eventually(t, "the file system is asked", func() bool { return dead.Held() > 0 })
	clock.Step(time.Hour)
	if err := <-result; !errors.As(err, &stuck) {
		t.Errorf("when its limit is over: %v", err)
	}
	if err := do(p, "pid", dead.Dir, "", nil); !errors.As(err, &stuck) {
		t.Errorf("another step is not kept from a place that does not answer: %v", err)
	}
	dead.Go()
}

// eventually returns once something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for limit := time.Now().Add(time.Minute); !holds(); <-again.C {
		if time.Now().After(limit) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// inKernel reports whether a thread of a process waits deaf to signals.
func inKernel(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if stat, err := os.ReadFile(thread); err == nil && strings.Contains(string(stat), ") D ") {
			return true
		}
	}
	return false
}
