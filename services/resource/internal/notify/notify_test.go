// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/notify"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

// The environment of a process that joins a cgroup and holds memory until its input ends.
const takeEnv, procsEnv = "SEXTANT_TEST_TAKE", "SEXTANT_TEST_PROCS"

func TestMain(m *testing.M) {
	if os.Getenv(takeEnv) == "" {
		os.Exit(m.Run())
	}
	if err := hold(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func hold() error {
	n, err := strconv.Atoi(os.Getenv(takeEnv))
	if err != nil {
		return err
	}
	if err := os.WriteFile(os.Getenv(procsEnv), fmt.Append(nil, os.Getpid()), 0); err != nil {
		return err
	}
	memory := make([]byte, n)
	for i := 0; i < n; i += os.Getpagesize() {
		memory[i] = 1
	}
	fmt.Println(len(memory))
	_, err = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(memory)
	return err
}

// awaited fails if nothing comes.
func awaited(t *testing.T, what string, calls <-chan struct{}) {
	t.Helper()
	select {
	case <-calls:
	case <-time.After(time.Minute):
		t.Fatalf("no call: %s", what)
	}
}

// newCalls is a call that fills a channel of one.
func newCalls() (chan struct{}, func()) {
	calls := make(chan struct{}, 1)
	return calls, func() {
		select {
		case calls <- struct{}{}:
		default:
		}
	}
}

// TestTheKernelCounts: a process that takes memory in a cgroup crosses a threshold, and
// one in a cgroup beside it does not.
func TestTheKernelCounts(t *testing.T) {
	if cgrouptest.V2() {
		t.Skip("thresholds of usage are of version 1")
	}
	root := cgrouptest.Root(t)
	tree := cgroup.Tree{Driver: pod.Cgroupfs}
	names := []pod.CgroupName{root.Child("short"), root.Child("wide")}
	var calls []<-chan struct{}
	for i, name := range names {
		if err := tree.Ensure(name, cgroup.Values{}); err != nil {
			t.Fatal(err)
		}
		one, call := newCalls()
		n, err := notify.New("", 1, []notify.Threshold{{Cgroup: name.Path(pod.Cgroupfs), Usage: int64(8+1000*i) << 20}}, call)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, one)
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, name := range names {
		take(t, name, 24<<20)
	}
	awaited(t, "24 MiB where 8 are much", calls[0])
	select {
	case <-calls[1]:
		t.Error("24 MiB where 1008 are much")
	default:
	}
}

// TestCrossedBeforeTheKernelKnows: usage that has come to a threshold since it was chosen is
// told of, as nothing else would be; usage that was there before is not.
func TestCrossedBeforeTheKernelKnows(t *testing.T) {
	path := full(t)
	set := func(reached bool) <-chan struct{} {
		calls, call := newCalls()
		n, err := notify.New("", 1, []notify.Threshold{{Cgroup: path, Usage: 8 << 20, Reached: reached}}, call)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		return calls
	}
	before := set(true)
	awaited(t, "24 MiB where 8 are much, and were not in use", set(false))
	select {
	case <-before:
		t.Error("24 MiB where 8 are much, and were in use")
	default:
	}
}

// TestCallsThatSetAnew: a call that has others set for its own does not have them call faster.
func TestCallsThatSetAnew(t *testing.T) {
	path := full(t)
	const most = 4
	calls := make(chan struct{}, most)
	began := time.Now()
	for range most {
		n, err := notify.New("", 1, []notify.Threshold{{Cgroup: path, Usage: 8 << 20}}, func() { calls <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		awaited(t, "24 MiB where 8 are much", calls)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < most*notify.Pause {
		t.Errorf("%d calls in %s", most, took)
	}
}

// full is a cgroup of version 1 in which 24 MiB are in use.
func full(t *testing.T) (path string) {
	t.Helper()
	if cgrouptest.V2() {
		t.Skip("thresholds of usage are of version 1")
	}
	name := cgrouptest.Root(t).Child("full")
	if err := (cgroup.Tree{Driver: pod.Cgroupfs}).Ensure(name, cgroup.Values{}); err != nil {
		t.Fatal(err)
	}
	take(t, name, 24<<20)
	return name.Path(pod.Cgroupfs)
}

// take has a process of a cgroup hold memory until the test ends, and returns when it has.
func take(t *testing.T, name pod.CgroupName, bytes int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), takeEnv+"="+fmt.Sprint(bytes), procsEnv+"="+filepath.Join("/sys/fs/cgroup/memory", name.Path(pod.Cgroupfs), "cgroup.procs"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	buffer := make([]byte, 64)
	n, err := out.Read(buffer)
	if got := strings.TrimSpace(string(buffer[:n])); err != nil || got != fmt.Sprint(bytes) {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestEventsOfVersion2: a change of memory.events calls; the root has none.
func TestEventsOfVersion2(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "sys/fs/cgroup/kubepods/memory.events")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(times int) {
		if err := os.WriteFile(file, fmt.Appendf(nil, "low 0\nhigh 0\nmax %d\noom 0\n", times), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	calls, call := newCalls()
	n, err := notify.New(root, 2, []notify.Threshold{{Cgroup: "/", Usage: 1}, {Cgroup: "/kubepods", Usage: 1}}, call)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		write(i + 1)
		awaited(t, fmt.Sprintf("change %d", i+1), calls)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestACgroupThatIsNotThere(t *testing.T) {
	for version := range uint32(2) {
		_, err := notify.New(t.TempDir(), version+1, []notify.Threshold{{Cgroup: "/kubepods", Usage: 1}}, func() {})
		if err == nil || !strings.Contains(err.Error(), "kubepods") {
			t.Errorf("version %d: %v", version+1, err)
		}
	}
}
