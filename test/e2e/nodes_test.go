// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// node is one node under test.
type node struct {
	*harness.Node
	kind     string
	flavour  harness.Flavour
	busOff   bool
	cp       *harness.ControlPlane
	registry *harness.Registry
	seen     *observer
	paths    house.Paths
	// early is the namespace of what runs from before the API server on.
	early string
}

// behaviours are tested side by side on every node.
var behaviours = []struct {
	name string
	test func(*env)
}{
	{"static pod", staticPod},
	{"API pod", apiPod},
	{"node", nodeObject},
	{"restarts", restarts},
	{"restart policy never", restartPolicyNever},
	{"init containers", initContainers},
	{"delete in time", deleteInTime},
	{"delete with SIGKILL", deleteIgnoringTerm},
	{"delete by force", deleteByForce},
	{"missing image", missingImage},
	{"readiness", readiness},
	{"liveness", liveness},
	{"startup", startup},
	{"kinds of probes", probeKinds},
	{"commands that outlive their time", commandsEnd},
	{"volumes", volumes},
	{"measurements", measurements},
	{"resizes", resizes},
	{"resources of a pod", podResources},
	{"evictions", evictions},
	{"OOM kills", oomKills},
	{"bad manifests", badManifests},
	{"operator's verbs", operatorVerbs},
	{"why", whyVerb},
	{"watch", watchVerb},
	{"status tells the house table", statusTellsTable},
	{"runtime socket", runtimeSocket},
	{"rights", rights},
	{"strangers", strangers},
	{"garbage", garbage},
	{"callers of the node API", nodeAPICallers},
	{"what nodeapi can read", nodeAPIFiles},
}

func TestNodes(t *testing.T) {
	cp := harness.StartControlPlane(t)
	nodes := startOffline(t, cp)
	comesLater(t, cp, nodes) // no test of its own: what follows, tried alone too, needs the API server
	t.Run("behaviour", func(t *testing.T) {
		each(t, nodes, func(t *testing.T, n *node) {
			for _, b := range behaviours {
				t.Run(b.name, func(t *testing.T) {
					t.Parallel()
					b.test(newEnv(t, n))
				})
			}
		})
	})
	t.Run("kill", func(t *testing.T) {
		// With the bus each service is killed by killmatrix.
		n := nodes[0]
		t.Run(n.kind, func(t *testing.T) { killMatrix(newEnv(t, n)) })
	})
	t.Run("resource slices", func(t *testing.T) { // kills services: not beside tests that see no process end
		each(t, nodes, func(t *testing.T, n *node) { resourceSlices(newEnv(t, n)) })
	})
	t.Run("kill while resizing", func(t *testing.T) {
		n := nodes[len(nodes)-1] // the kinds do not differ in this
		t.Run(n.kind, func(t *testing.T) { killWhileResizing(newEnv(t, n)) })
	})
	t.Run("dead file system", func(t *testing.T) {
		n := nodes[len(nodes)-1] // the kinds do not differ in this
		t.Run(n.kind, func(t *testing.T) { deadFileSystem(newEnv(t, n)) })
	})
	t.Run("from the API to the disk", func(t *testing.T) {
		n := nodes[len(nodes)-1]
		t.Run(n.kind, func(t *testing.T) { volumeFigures(newEnv(t, n)) })
	})
	t.Run("CSI", func(t *testing.T) {
		n := nodes[len(nodes)-1] // the kinds do not differ in this
		t.Run(n.kind, func(t *testing.T) { csiVolumes(newEnv(t, n)) })
	})
	t.Run("runtime killed", func(t *testing.T) {
		each(t, nodes, func(t *testing.T, n *node) { killRuntime(newEnv(t, n)) })
	})
	t.Run("down and up", func(t *testing.T) {
		each(t, nodes, func(t *testing.T, n *node) { downAndUp(newEnv(t, n)) })
	})
	t.Run("purge", func(t *testing.T) {
		each(t, nodes, func(t *testing.T, n *node) { purge(newEnv(t, n)) })
	})
}

// each runs a test on every node at the same time.
func each(t *testing.T, nodes []*node, test func(*testing.T, *node)) {
	for _, n := range nodes {
		t.Run(n.kind, func(t *testing.T) {
			t.Parallel()
			test(t, n)
		})
	}
}

// startOffline starts the nodes while the API server is away, each with one
// static pod.
func startOffline(t *testing.T, cp *harness.ControlPlane) []*node {
	t.Helper()
	registry := harness.StartRegistry(t)
	var nodes []*node
	for _, kind := range strings.Split(*kinds, ",") {
		flavour, bus, _ := strings.Cut(kind, "-")
		if !slices.Contains([]harness.Flavour{harness.Debian, harness.V17, harness.V2}, harness.Flavour(flavour)) || bus != "bus" && bus != "nobus" {
			t.Fatalf("-kinds=%s: there is no kind of node %q", *kinds, kind)
		}
		nodes = append(nodes, &node{
			kind: kind, flavour: harness.Flavour(flavour), busOff: bus == "nobus", cp: cp, registry: registry, early: cp.Namespace(t),
		})
	}
	seen := observe(t, cp)
	cp.Stop(t)
	cp.StopControllers(t)
	var wait sync.WaitGroup
	for _, n := range nodes {
		n.Node = harness.NewNode(t, harness.NodeOptions{Flavour: n.flavour, ControlPlane: cp, BusOff: n.busOff})
		n.seen, n.paths = seen, house.Paths{Run: n.Run, State: n.State}
		n.AddManifest(t, "early.yaml", n.pod(n.early, "early"))
		wait.Go(func() {
			// Up waits for the API server; what it says then is looked at below.
			out, err := n.TryUp(t.Context(), "--timeout=5s")
			t.Logf("%s: up without an API server: %v\n%s", n.kind, err, out)
		})
	}
	wait.Wait()
	return nodes
}

// comesLater sees the early pods run before the API server is there, and become
// known to it afterwards.
func comesLater(t *testing.T, cp *harness.ControlPlane, nodes []*node) {
	uids := map[*node]string{}
	for _, n := range nodes {
		dumpOnFailure(t, n, n.early)
		harness.Eventually(t, 60*time.Second, "the early pod of "+n.kind, func(ctx context.Context) error {
			pod, err := n.Pod(ctx, "early")
			if err == nil && (pod.Phase != "Running" || pod.Ready != "1/1" || pod.IP == "") {
				err = fmt.Errorf("it is %+v", pod)
			}
			uids[n] = pod.UID
			return err
		})
		health, err := n.hello(t.Context(), house.Config)
		if err != nil || health.GetHealth() != nodev1.Health_HEALTH_STARTING || !strings.Contains(health.GetHealthReason(), "API server") {
			t.Errorf("%s: config says %v %v, not that it waits for the API server", n.kind, health, err)
		}
	}
	cp.Resume(t)
	cp.StartControllers(t)
	for _, n := range nodes {
		e := &env{T: t, n: n, ns: n.early}
		pod := e.awaitRunning("early-"+n.Name, usual)
		if got := pod.Annotations[mirrorAnnotation]; got != uids[n] {
			t.Errorf("%s: the mirror is of %q, the pod is %q", n.kind, got, uids[n])
		}
		if r := pod.Status.ContainerStatuses[0].RestartCount; r != 0 {
			t.Errorf("%s: the API server's coming restarted the pod %d times", n.kind, r)
		}
		e.awaitNode(usual, "Ready", func(node *corev1.Node) error {
			return wantCondition(node, corev1.NodeReady, corev1.ConditionTrue)
		})
		n.awaitServing(t, 3*time.Minute)
	}
}
