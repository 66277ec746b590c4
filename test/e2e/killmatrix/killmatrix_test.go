package killmatrix_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

var (
	rounds  = flag.Int("rounds", 30, "how often each service is killed")
	pairs   = flag.Int("pairs", 30, "how many pairs are killed")
	long    = flag.Int("long", 2, "how often each service suffers each of the faults that last, and each surrounding part its own")
	seed    = flag.Uint64("seed", 0, "what is done when, again; new if 0")
	ready   = flag.Int("ready", 50, "pods that are Ready all the time")
	unready = flag.Int("unready", 10, "pods that run and are never Ready")
	churn   = flag.Int("churn", 5, "pods that start, and as many that end, at any time")
	lasting = flag.Duration("lasting", 30*time.Second, "how long a process is stopped")
	full    = flag.Duration("full", 10*time.Second, "how long the disk takes nothing")
	away    = flag.Duration("away", time.Minute, "how long the API server is away")
	out     = flag.String("out", "", "file for the table")
)

func TestMain(m *testing.M) {
	flag.Parse()
	harness.Main(m)
}

// deed is a fault to one or two services.
type deed struct {
	fault string
	to    []house.Service
}

func TestKillMatrix(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d does the same again", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	cp := harness.StartControlPlane(t)
	n := harness.StartNode(t, harness.NodeOptions{ControlPlane: cp})
	l := startLoad(t, cp, n, *ready, *unready, *churn, random.Uint64())

	var all []judge.Round
	for _, d := range deeds(random) {
		l.rest(time.Duration(random.Int64N(int64(2 * time.Second))))
		r := l.round(d)
		all = append(all, r)
		for _, f := range r.Findings {
			t.Errorf("%s to %s: %s: %s", r.Fault, r.To, f.Kind, f.What)
		}
	}
	for range *long {
		all = append(all, l.surroundings()...)
	}
	all = append(all, judge.Round{Fault: "end", To: "churn", Findings: l.end()})
	table := judge.Table(all, judge.Kinds())
	fmt.Printf("\n%d faults, seed %d; %d pods Ready, %d not, %d starting and as many ending\n\n%s\n", len(all)-1, *seed, *ready, *unready, *churn, table)
	if *out != "" {
		if err := os.WriteFile(*out, []byte(table), 0o644); err != nil {
			t.Error(err)
		}
	}
	if judge.Bad(all) && !t.Failed() {
		t.Error("something was found that must not be")
	}
}

// deeds are all that is done to services, in random order.
func deeds(random *rand.Rand) []deed {
	var list []deed
	services := house.Services()
	for _, s := range services {
		for range *rounds {
			list = append(list, deed{kill, []house.Service{s}})
		}
		for range *long {
			for _, fault := range []string{stop, memory, disk} {
				list = append(list, deed{fault, []house.Service{s}})
			}
		}
	}
	for range *pairs {
		i := random.IntN(len(services))
		j := (i + 1 + random.IntN(len(services)-1)) % len(services)
		list = append(list, deed{kill, []house.Service{services[i], services[j]}})
	}
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// The faults.
const (
	kill   = "kill -9"
	stop   = "SIGSTOP"
	memory = "memory limit"
	disk   = "disk full"
)

// round does a deed, makes a pod at that moment, and judges.
func (l *load) round(d deed) judge.Round {
	l.t.Helper()
	var names []string
	for _, s := range d.to {
		names = append(names, string(s))
	}
	slices.Sort(names)
	return l.judged(d.fault, strings.Join(names, "+"), func() (mend func()) {
		var undo []func()
		for _, s := range d.to {
			undo = append(undo, l.hurt(d.fault, s))
		}
		return func() {
			for _, u := range undo {
				u()
			}
		}
	})
}

// hurt does something to a service and returns what ends it.
func (l *load) hurt(fault string, s house.Service) (mend func()) {
	l.t.Helper()
	pid := 0
	harness.Eventually(l.t, patience, "a process of "+string(s), func(context.Context) error {
		if pid = l.pid(s); pid == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	signal := func(sig unix.Signal) {
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			l.t.Errorf("signal %d to %s: %v", sig, s, err)
		}
	}
	switch fault {
	case kill:
		signal(unix.SIGKILL)
	case stop:
		signal(unix.SIGSTOP)
		return func() {
			l.rest(*lasting)
			signal(unix.SIGCONT) // a watchdog may have been faster
		}
	case memory:
		return l.starve(s, pid)
	case disk:
		return l.fill(s, pid)
	}
	return func() {}
}

// fill has every write of a process fail that makes a file grow beyond nothing, as
// on a disk without room. Nobody else is concerned.
func (l *load) fill(s house.Service, pid int) (mend func()) {
	l.t.Helper()
	var was unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was)
	if err == nil {
		err = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: was.Max}, nil)
	}
	if err != nil {
		l.t.Errorf("limit the files of %s: %v", s, err)
	}
	return func() {
		l.rest(*full)
		if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &was, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			l.t.Errorf("lift the limit of %s: %v", s, err)
		}
	}
}

// starve puts a process into a memory cgroup with no room, where the kernel ends
// it at its next growth.
func (l *load) starve(s house.Service, pid int) (mend func()) {
	l.t.Helper()
	base, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(base); err != nil {
		base, limit = "/sys/fs/cgroup", "memory.max"
	}
	dir := filepath.Join(base, l.n.Runtime.CgroupRoot+"-starved-"+string(s))
	err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, limit), []byte("262144"), 0o644),
		os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, pid), 0o644))
	if err != nil {
		l.t.Errorf("starve %s: %v", s, err)
	}
	return func() {
		err := harness.Within(l.t.Context(), time.Minute, func(context.Context) error {
			if l.pid(s) == pid {
				return fmt.Errorf("%s lives in 256 KiB", s)
			}
			return nil
		})
		if err != nil {
			l.t.Error(err)
			_ = unix.Kill(pid, unix.SIGKILL) // or the cgroup stays
		}
		if err := harness.Within(l.t.Context(), time.Minute, func(context.Context) error { return os.Remove(dir) }); err != nil {
			l.t.Error(err)
		}
	}
}

// surroundings takes the API server away for a while, and kills the runtime.
func (l *load) surroundings() []judge.Round {
	return []judge.Round{
		l.judged("away", "API server", func() func() {
			l.pause()
			l.cp.Stop(l.t)
			return func() {
				l.rest(*away)
				l.cp.Resume(l.t)
				l.resume()
			}
		}),
		l.judged(kill, "runtime", func() func() {
			l.n.Runtime.Kill(l.t)
			return func() { l.n.Runtime.Restart(l.t) }
		}),
	}
}
