// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/images"
)

// TestStages parts the starts of pods on a runtime whose calls take no time into their
// stages: what is there is the API server's, the watches' and Sextant's own.
func TestStages(t *testing.T) {
	cp := harness.StartControlPlane(t)
	audit := cp.Audit(t)
	host := harness.StartRuntime(t, harness.V2) // whose cgroups the node's pods are below
	rt := fakecri.Start(t, fakecri.Config{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS, Images: []fakecri.Image{{Ref: images.Pause}}})
	open(t, rt.Socket())
	o := harness.NodeOptions{Name: "bench-stages", Runtime: host, ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.ContainerRuntimeEndpoint = "unix://" + rt.Socket()
	}}
	n := harness.StartNode(t, o)
	run := &figures.Run{}
	a := &agent{name: figures.Sextant, node: o.Name, run: run, cp: cp, rt: host, audit: audit, ns: cp.Namespace(t)}
	a.seen = watchPods(t, cp, a.ns)
	a.processes, a.stop = n.Processes, func(t *testing.T) { n.Down(t) }
	t.Cleanup(func() { a.leave(t) })
	ready(t, cp, a.node)
	a.budget(t, n)
	fmt.Printf("\nstages of a pod's start on a runtime of no time (ms)\n%s\n", figures.BudgetTable(run.Budget))
}
