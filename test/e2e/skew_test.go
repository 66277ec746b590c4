package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

var (
	previous = flag.String("previous", "", "the version to mix with this one: a commit or tag; the parent commit if empty")
	skewSeed = flag.Uint64("skew-seed", 0, "orders of upgrades to repeat; new ones if 0")
)

// TestSkew mixes the services of the commit before this one with those of this
// one. A node of the old version is upgraded one service at a time, goes back in
// another order, and forward again in a third: whatever runs beside whatever, the
// pods keep their containers, the API hears nothing of it, new pods run, and each
// version reads the state that the other wrote.
func TestSkew(t *testing.T) {
	lab := harness.The(t)
	source, revision := previousSource(t)
	versions := map[string]string{"old": lab.BuildVersion(t, source, "old"), "new": lab.BuildVersion(t, lab.Source, "new")}
	seed := *skewSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("old is %s; -skew-seed=%d repeats the orders", revision, seed)
	random := rand.New(rand.NewPCG(seed, 0))

	cp := harness.StartControlPlane(t)
	program := filepath.Join(lab.Dir, "sextant-skewed")
	install(t, versions["old"], program)
	n := &node{kind: "skew", flavour: harness.V2, cp: cp, registry: harness.StartRegistry(t), seen: observe(t, cp)}
	n.Node = harness.StartNode(t, harness.NodeOptions{ControlPlane: cp, Binary: program})
	n.paths = house.Paths{Run: n.Run, State: n.State}
	e := newEnv(t, n)
	names := e.five()
	n.awaitServing(t, usual)
	before, began := e.state(names), time.Now()

	order := n.services() // the order of start is the one an operator would take
	for _, version := range []string{"new", "old", "new"} {
		install(t, versions[version], program)
		for i, s := range order {
			e.exchange(s, version)
			if i%3 == 1 { // with few, with half, and with most exchanged
				name := fmt.Sprintf("%s-%d", version, i)
				e.create(e.pod(name))
				e.awaitRunning(name, usual)
				e.delete(name, 5)
				e.awaitGone(name, usual)
			}
		}
		what := fmt.Sprintf("all are %s, in the order %v", version, order)
		e.same(what, names, before, e.state(names))
		e.flips(what, names, began)
		if t.Failed() {
			break
		}
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	aside, err := filepath.Glob(filepath.Join(n.State, "*", "*.damaged-*"))
	if err != nil || len(aside) > 0 {
		t.Errorf("state that one version wrote was of no use to the other: %v, %v", aside, err)
	}
	e.removeStatic()
}

// exchange kills a service, which comes back as what is installed now.
func (e *env) exchange(s house.Service, version string) {
	e.Helper()
	old, err := e.n.hello(e.Context(), s)
	if err != nil {
		e.Fatal(err)
	}
	if err := unix.Kill(int(old.GetPid()), unix.SIGKILL); err != nil {
		e.Fatal(err)
	}
	harness.Eventually(e, usual, fmt.Sprintf("%s to be %s and all to serve", s, version), func(ctx context.Context) error {
		all, err := e.n.hellos(ctx)
		if err != nil {
			return err
		}
		if h := all[s]; h.GetVersion() != version || h.GetEpoch() == old.GetEpoch() {
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

// previousSource unpacks the source of the commit before this one. A copy of the
// repository that ends with this commit has none: that is the one reason not to
// test.
func previousSource(t *testing.T) (dir, revision string) {
	t.Helper()
	git := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = harness.The(t).Source
		return cmd.Output()
	}
	wanted := *previous
	if wanted == "" {
		wanted = "HEAD^"
	}
	out, err := git("rev-parse", "--verify", "--quiet", wanted+"^{commit}")
	if err != nil && *previous == "" {
		t.Skip("this copy of the repository has no commit before the current one, so there is nothing to mix with")
	}
	if err != nil {
		t.Fatalf("-previous=%s: %v", *previous, err)
	}
	revision = strings.TrimSpace(string(out))
	archive, err := git("archive", "--format=tar", revision)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	tar := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	tar.Stdin = bytes.NewReader(archive)
	if msg, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", revision, err, msg)
	}
	return dir, revision[:min(12, len(revision))]
}
