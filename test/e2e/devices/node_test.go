// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/test/cdi"
	"github.com/sextant-node/sextant/test/deviceplugin"
	"github.com/sextant-node/sextant/test/dradriver"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
)

// The resources of the two plugins: nothing is known of where a gpu is; a nic is near the
// first NUMA node, and its plugin prefers some and is called before a container starts.
const (
	gpu = "example.com/gpu"
	nic = "example.com/nic"
)

// How many pods there are, and devices for them: each pod that stays, and two in each lane
// (one ends while the next starts), has one of each resource.
const (
	keepers = 2
	lanes   = 2
	spare   = 2
	devices = keepers + 2*lanes + 2 + spare // two more for the pods with CPUs of their own
)

// stock are the devices of a resource; the second generation is what a plugin may come back
// with in place of some of the first.
func stock(resource string) (first, second []string) {
	short := strings.TrimPrefix(resource, "example.com/")
	for i := range devices {
		first = append(first, fmt.Sprintf("%s%d", short, i))
	}
	for i := range spare {
		second = append(second, fmt.Sprintf("%s%d", short, devices+i))
	}
	return first, second
}

// crowd is a node with devices, and pods that have them.
type crowd struct {
	*load.Load
	random  *rand.Rand
	plugins map[string]*deviceplugin.Plugin
	driver  *dradriver.Driver
	mood    *mood
	ledger  *ledger
	churn   *churn
}

// options of the node: one CPU is reserved and the others are for pods that ask for whole
// ones, as is all memory that is not reserved.
func configure(c *kubeletv1beta1.KubeletConfiguration) {
	c.CPUManagerPolicy, c.MemoryManagerPolicy, c.TopologyManagerPolicy = "static", "Static", "restricted"
	c.ReservedSystemCPUs = "0"
	c.KubeReserved = map[string]string{"memory": "50Mi"}
	c.ReservedMemory = []kubeletv1beta1.MemoryReservation{{
		NumaNode: 0, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")}, // with evictionHard's
	}}
}

// start makes the node, its plugins and its driver.
func start(t *testing.T, random *rand.Rand) *crowd {
	t.Helper()
	cp := harness.StartControlPlane(t)
	n := harness.NewNode(t, harness.NodeOptions{ControlPlane: cp, Configure: configure})
	c := newCrowd(t, n, random)
	n.Up(t)
	c.equip(cp)
	return c
}

// newCrowd is of a node that has not been started; the runtime knows its devices.
func newCrowd(t *testing.T, n *harness.Node, random *rand.Rand) *crowd {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Fatal("needs two CPUs: one is reserved")
	}
	c := &crowd{
		Load: &load.Load{T: t, Node: n}, random: random, plugins: map[string]*deviceplugin.Plugin{}, mood: &mood{}, ledger: newLedger(),
	}
	for _, resource := range []string{gpu, nic} {
		first, second := stock(resource)
		if err := cdi.Write(n.Runtime.CDIDir(), strings.ReplaceAll(resource, "/", "-")+".json", resource, append(first, second...)...); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// equip starts the plugins and the driver, and watches the pods.
func (c *crowd) equip(cp *harness.ControlPlane) {
	t, n := c.T, c.Node
	t.Helper()
	dir := filepath.Join(n.Root, "device-plugins")
	first, _ := stock(gpu)
	c.plugins[gpu] = deviceplugin.Start(t, dir, gpu, deviceplugin.Devices(first...))
	c.plugins[nic] = deviceplugin.Start(t, dir, nic, nics(stockOf(nic)), deviceplugin.Prefers, deviceplugin.Prestarts)
	for _, p := range c.plugins {
		p.Stay()
	}
	c.driver = &dradriver.Driver{
		Name: "claims.example.com", CDIDir: n.Runtime.CDIDir(), Prepare: c.mood.prepare, Unprepare: c.mood.prepare,
	}
	if err := c.driver.Start(n.Root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.driver.Stop)
	c.Load = load.Watch(t, cp, n)
	c.Blind = withoutHealth
	c.churn = &churn{crowd: c}
}

// withoutHealth removes from a pod how its devices are: plugins that have ended are no fault.
func withoutHealth(p *corev1.Pod) {
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].AllocatedResourcesStatus = nil
	}
}

func stockOf(resource string) []string {
	first, _ := stock(resource)
	return first
}

// nics are devices near the first NUMA node.
func nics(ids []string) (all []*pluginapi.Device) {
	for _, id := range ids {
		all = append(all, deviceplugin.Device(id, 0))
	}
	return all
}

// restart stops every service and starts them again, with faults (package fault).
func (c *crowd) restart(faults string) {
	c.T.Helper()
	c.Node.Down(c.T)
	if err := os.Setenv(fault.Env, faults); err != nil {
		c.T.Fatal(err)
	}
	defer os.Unsetenv(fault.Env) //nolint:errcheck // it has that name
	var limit []string
	if faults != "" { // it may never be up
		limit = []string{"--timeout=5s"}
	}
	out, err := c.Node.TryUp(c.T.Context(), limit...)
	if err != nil && faults == "" {
		c.T.Fatalf("sextant up: %v\n%s", err, out)
	}
	c.Kills()
}

// ended is how many processes of services have ended by kill -9 so far, by the supervisor.
func (c *crowd) ended() int {
	c.T.Helper()
	text, err := os.ReadFile(filepath.Join(c.Node.Logs, "supervisor.log"))
	if err != nil {
		c.T.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(`"service ended"`)) && bytes.Contains(line, []byte("signal: killed")) {
			n++
		}
	}
	return n
}

// serving waits until every service serves.
func (c *crowd) serving() error {
	return harness.Within(c.T.Context(), load.Patience, func(ctx context.Context) error { return c.Node.Serving(ctx) })
}
