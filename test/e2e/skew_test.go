// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

var (
	previous = flag.String("previous", "", "the version to mix with this one: a commit, a tag or a version of releases.txt; the last commit with another product if empty")
	skewSeed = flag.Uint64("skew-seed", 0, "orders of upgrades to repeat; new ones if 0")
)

// oldVersion is how the services of the former commit call themselves; those of this
// one do not.
const oldVersion = "old"

// TestSkew mixes the services of an earlier commit with those of this one.
// A node of the old version is upgraded one service at a time, and goes back:
// whatever runs beside whatever, the pods keep their containers, the API hears
// nothing of it, new pods run, and each version reads the state that the other wrote.
//
// Going forth and back in one order has every two services mixed either way. The long
// form goes in the order of start and in its reverse, and then in one at random, so
// that each service of either version has also started beside every other one of the
// other version.
func TestSkew(t *testing.T) {
	lab := harness.The(t)
	source, revision := previousSource(t)
	programs := map[bool]string{true: lab.BuildVersion(t, source, oldVersion), false: lab.Binary(t)}
	seed := *skewSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("old is %s; -skew-seed=%d repeats the orders", revision, seed)

	cp := harness.StartControlPlane(t)
	program := filepath.Join(lab.Dir, "sextant-skewed")
	install(t, programs[true], program)
	n := &node{kind: "skew", flavour: harness.V2, cp: cp, registry: harness.StartRegistry(t), seen: observe(t, cp)}
	n.Node = harness.StartNode(t, harness.NodeOptions{ControlPlane: cp, Binary: program})
	n.paths = house.Paths{Run: n.Run, State: n.State}
	e := newEnv(t, n)
	names := e.five()
	n.awaitServing(t, usual)
	before, began := e.state(names), time.Now()

	start := n.services() // the order an operator would take
	reverse := slices.Clone(start)
	slices.Reverse(reverse)
	shuffled := slices.Clone(start)
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	orders := [][]house.Service{start, reverse, reverse, start, shuffled, shuffled}
	if testing.Short() {
		orders = [][]house.Service{shuffled, shuffled}
	}
	for round, order := range orders {
		toOld := round%2 == 1
		install(t, programs[toOld], program)
		for i, s := range order {
			e.exchange(s, toOld)
			if i%3 == 1 { // with few, with half, and with most exchanged
				name := fmt.Sprintf("round-%d-%d", round, i)
				e.create(e.pod(name))
				e.awaitRunning(name, usual)
				e.delete(name, 5)
				e.awaitGone(name, usual)
			}
		}
		what := fmt.Sprintf("round %d, old is %t, in the order %v", round, toOld, order)
		e.same(what, names, before, e.state(names))
		e.flips(what, names, began)
		if t.Failed() {
			break
		}
		t.Log(what)
	}
	aside, err := filepath.Glob(filepath.Join(n.State, "*", "*.damaged-*"))
	if err != nil || len(aside) > 0 {
		t.Errorf("state that one version wrote was of no use to the other: %v, %v", aside, err)
	}
	e.removeStatic()
}

// exchange kills a service, which comes back as what is installed now.
func (e *env) exchange(s house.Service, toOld bool) {
	e.Helper()
	old, err := e.n.hello(e.Context(), s)
	if err != nil {
		e.Fatal(err)
	}
	if err := unix.Kill(int(old.GetPid()), unix.SIGKILL); err != nil {
		e.Fatal(err)
	}
	harness.Eventually(e, usual, fmt.Sprintf("%s to be exchanged (old: %t) and all to serve", s, toOld), func(ctx context.Context) error {
		all, err := e.n.hellos(ctx)
		if err != nil {
			return err
		}
		if h := all[s]; (h.GetVersion() == oldVersion) != toOld || h.GetEpoch() == old.GetEpoch() {
			return fmt.Errorf("it is %s, process %d", h.GetVersion(), h.GetPid())
		}
		for name, h := range all {
			if name != house.Bus && !h.GetBusConnected() {
				return fmt.Errorf("%s is not on the bus", name)
			}
		}
		return nil
	})
}

// install puts a program in the place of another, of which processes go on.
func install(t *testing.T, program, place string) {
	t.Helper()
	b, err := os.ReadFile(program)
	err = errors.Join(err, os.WriteFile(place+".new", b, 0o755), os.Rename(place+".new", place))
	if err != nil {
		t.Fatal(err)
	}
}

// previousSource unpacks the source of -previous, or of the last commit with another
// product than this tree's. A copy of the repository without history has none: then
// this tree is mixed with itself under another name, which still tests that each
// service starts beside the others and on what they left, in any order.
func previousSource(t *testing.T) (dir, revision string) {
	t.Helper()
	source := harness.The(t).Source
	dir = t.TempDir()
	var messages strings.Builder
	unpack := exec.CommandContext(t.Context(), filepath.Join(source, "test", "env", "previous.sh"), dir, *previous)
	unpack.Stderr = &messages
	out, err := unpack.Output()
	const noHistory = 3
	switch {
	case unpack.ProcessState.ExitCode() == noHistory:
		return source, "this tree, for want of history: only restarts in any order are tested"
	case err != nil:
		t.Fatalf("-previous=%s: %v\n%s", *previous, err, messages.String())
	}
	return dir, strings.TrimSpace(string(out))
}
