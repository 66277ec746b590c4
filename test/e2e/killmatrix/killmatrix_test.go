// SPDX-License-Identifier: Apache-2.0

package killmatrix_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

var (
	rounds   = flag.Int("rounds", 30, "kills: how often each service is killed")
	pairs    = flag.Int("pairs", 30, "kills: how many pairs are killed")
	cut      = flag.Bool("cut", false, "kills: without the API server, which is away meanwhile")
	long     = flag.Int("long", 1, "lasting faults: how often each service suffers each, and what surrounds them")
	stopped  = flag.Duration("stopped", 30*time.Second, "lasting faults: how long a process is stopped")
	full     = flag.Duration("full", 10*time.Second, "lasting faults: how long a disk is full")
	away     = flag.Duration("away", 10*time.Minute, "lasting faults: how long the API server is away")
	jumped   = flag.Duration("jumped", 10*time.Second, "lasting faults: how long the clock is wrong")
	services = flag.String("services", "", "only these, separated by commas")
	only     = flag.String("faults", "", "lasting faults: only these, separated by commas")
	seed     = flag.Uint64("seed", 0, "what is done when, again; new if 0")
	ready    = flag.Int("ready", 50, "pods that are Ready all the time")
	unready  = flag.Int("unready", 10, "pods that run and are never Ready")
	starting = flag.Int("starting", 5, "pods whose startup probe never succeeds")
	churn    = flag.Int("churn", 5, "pods that start, and as many that end, at any time")
	dwell    = flag.Duration("dwell", 4*time.Second, "how long each of those starts, and how long it takes to end; at least")
	slack    = flag.Duration("slack", time.Second, "how much later than a period the first probe after a kill of prober may come before it counts")
	out      = flag.String("out", "", "file for the table")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*rounds, *pairs, *long = 1, 2, 1
		*stopped, *full, *away, *jumped = 2*time.Second, time.Second, time.Second, time.Second
		*ready, *unready, *starting, *churn = 10, 2, 2, 1
	}
	harness.Main(m)
}

// matrix is one part of it: a node under load, and what came of what was done.
type matrix struct {
	*load
	random *rand.Rand
	rounds []judge.Round
}

// begin starts a node with its load, and with hogs unless they are nil.
func begin(t *testing.T, prepare func(*harness.Node), hogs *hogs) *matrix {
	t.Helper()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d does the same again", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	cp := harness.StartControlPlane(t)
	n := harness.NewNode(t, harness.NodeOptions{ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		if c.MaxPods = 500; hogs != nil {
			hogs.configure(t, c)
		}
	}})
	prepare(n)
	n.Up(t)
	return &matrix{load: startLoad(t, cp, n, size{*ready, *unready, *starting, *churn}, random.Uint64(), hogs), random: random}
}

// do does a deed after a moment of chance.
func (m *matrix) do(d deed) {
	m.t.Helper()
	harness.Rest(m.t, time.Duration(m.random.Int64N(int64(1500*time.Millisecond))))
	m.note(d.what(), m.round(d))
}

// note keeps a round and says at once what it found.
func (m *matrix) note(what string, r judge.Round) {
	m.t.Helper()
	m.rounds = append(m.rounds, r)
	m.t.Logf("%s %s: new pod Ready after %.2f s, undisturbed %.2f s", time.Now().Format(time.TimeOnly), what, r.Recovery.Seconds(), r.Calm.Seconds())
	for _, f := range r.Findings {
		m.t.Errorf("%s: %s: %s", what, f.Kind, f.What)
	}
}

// finish ends the load, prints the table, and writes it.
func (m *matrix) finish() {
	m.t.Helper()
	if !*cut { // the API server being away, no pod is made
		for _, f := range judge.Slow(m.rounds) {
			m.t.Errorf("all rounds: %s: %s", f.Kind, f.What)
		}
	}
	m.note("the end", m.end())
	m.t.Logf("events told at the API:\n%s", strings.Join(m.w.events(), "\n"))
	apart := ""
	if *cut {
		apart = "; the API server away"
	}
	table := harness.The(m.t).Header(m.t) + fmt.Sprintf("%d faults, seed %d; %d pods Ready, %d not, %d in startup, %d coming and as many going%s\n\n%s",
		len(m.rounds)-1, *seed, *ready, *unready, *starting, *churn, apart, judge.Table(m.rounds, judge.Kinds()))
	fmt.Printf("\n%s\n", table)
	if *out != "" {
		if err := os.WriteFile(*out, []byte(table), 0o644); err != nil {
			m.t.Error(err)
		}
	}
}

// TestKills kills services and pairs of them, in random order.
func TestKills(t *testing.T) { killAll(t, nil) }

// TestKillsUnderPressure is TestKills while pods are evicted for want of memory, one after the
// other: each of them goes, and none of the others.
func TestKillsUnderPressure(t *testing.T) {
	killAll(t, hogsBeside(*ready+*unready+*starting+3**churn))
}

func killAll(t *testing.T, hogs *hogs) {
	m := begin(t, func(*harness.Node) {}, hogs)
	var list []deed
	victims := chosen()
	for _, s := range victims {
		for range *rounds {
			list = append(list, deed{kill, []house.Service{s}})
		}
	}
	for range *pairs {
		i := m.random.IntN(len(victims))
		j := (i + 1 + m.random.IntN(len(victims)-1)) % len(victims)
		list = append(list, deed{kill, []house.Service{victims[i], victims[j]}})
	}
	m.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if *cut {
		m.cut()
	}
	for _, d := range list {
		m.do(d)
	}
	if *cut {
		m.join()
		m.note("the API server is back", m.judged("back", "API server", nil))
	}
	m.finish()
}

// TestLasting does what lasts: to each service, and to what is around them.
func TestLasting(t *testing.T) {
	m := begin(t, func(n *harness.Node) { disks(t, n) }, nil)
	var list []deed
	for range *long {
		for _, s := range chosen() {
			for _, fault := range []string{stop, memory, disk, diskKill} {
				list = append(list, deed{fault, []house.Service{s}})
			}
		}
		for _, fault := range []string{gone, restarted, ahead, behind} {
			list = append(list, deed{fault, nil})
		}
	}
	if *only != "" {
		faults := strings.Split(*only, ",")
		list = slices.DeleteFunc(list, func(d deed) bool { return !slices.Contains(faults, d.fault) })
	}
	m.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if testing.Short() {
		// The clock and the runtime each time; of the others three, by lot.
		always := []string{restarted, ahead, behind}
		slices.SortStableFunc(list, func(a, b deed) int {
			return cmp.Compare(slices.Index(always, b.fault), slices.Index(always, a.fault))
		})
		list = list[:min(len(list), 6)]
	}
	for _, d := range list {
		m.do(d)
	}
	m.finish()
}

// chosen are the services that something is done to.
func chosen() []house.Service {
	if *services == "" {
		return house.Services()
	}
	var list []house.Service
	for _, s := range strings.Split(*services, ",") {
		list = append(list, house.Service(s))
	}
	return list
}
