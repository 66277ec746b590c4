// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
	"github.com/sextant-node/sextant/test/deviceplugin"
)

const gpu, nic = "example.com/gpu", "example.com/nic"

// plugins is a rig with device plugins; their folder is a short path, as sockets need.
func plugins(t *testing.T) (*rig, string) {
	t.Helper()
	r := newRig(t, nil)
	r.settle()
	return r, filepath.Join(r.machine, "device-plugins")
}

// wanting is a pod whose container asks for n devices.
func wanting(uid string, n int64) *v1.Pod { return asking(burstable(uid, "1"), gpu, n) }

// asking has a pod's container ask for n devices of a resource.
func asking(p *v1.Pod, name v1.ResourceName, n int64) *v1.Pod {
	r := &p.Spec.Containers[0].Resources
	if r.Limits == nil {
		r.Limits = v1.ResourceList{}
	}
	r.Limits[name] = *resource.NewQuantity(n, resource.DecimalSI)
	r.Requests[name] = r.Limits[name]
	return p
}

func (r *rig) counts(capacity, allocatable string) {
	r.Helper()
	r.Eventually("capacity "+capacity+", allocatable "+allocatable, func() bool {
		item, _ := r.node.Get("node")
		return item.GetCapacity()[gpu] == capacity && item.GetAllocatable()[gpu] == allocatable
	})
}

// plugin waits for the state of the plugin of a resource.
func (r *rig) plugin(resource, state string) {
	r.Helper()
	r.Eventually("the plugin of "+resource+" is "+state, func() bool {
		item, _ := r.node.Get("node")
		return slices.ContainsFunc(item.GetDevicePlugins(), func(p *resourcev1.DevicePlugin) bool {
			return p.GetResource() == resource && p.GetState() == state
		})
	})
}

// devices are those of a pod's container, as published.
func (r *rig) devices(uid string) string {
	item, _ := r.pods.Get(uid)
	var ids []string
	for _, c := range item.GetContainers() {
		for _, d := range c.GetPluginDevices() {
			for _, one := range d.GetDevices() {
				ids = append(ids, one.GetId())
			}
		}
	}
	return strings.Join(ids, ",")
}

func (r *rig) health(uid string) string {
	item, _ := r.pods.Get(uid)
	var all []string
	for _, h := range item.GetDeviceHealth() {
		all = append(all, h.GetId()+" "+h.GetHealth())
	}
	return strings.Join(all, ", ")
}

// admitted has a pod admitted, and returns its devices.
func (r *rig) admitted(p *v1.Pod) string {
	r.Helper()
	r.decided(p, "admitted")
	r.Eventually("the pod's item", func() bool { _, ok := r.pods.Get(string(p.UID)); return ok })
	return r.devices(string(p.UID))
}

func (r *rig) decided(p *v1.Pod, want string) {
	r.Helper()
	if got := decision(r.admit(p, false)); !strings.HasPrefix(got, want) {
		r.Fatalf("pod %s: %s, want %s", p.UID, got, want)
	}
}

// TestDevicesOfAPlugin: a pod has its devices before it is admitted, with all that the
// plugin says of them; no other pod gets them until the pod is gone.
func TestDevicesOfAPlugin(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b", "c"))
	r.counts("3", "3")
	if got := r.admitted(wanting("one", 2)); got != "a,b" {
		t.Errorf("devices %s", got)
	}
	item, _ := r.pods.Get("one")
	c := item.GetContainers()[0]
	if c.GetName() != "c" || c.GetEnvs()["DEVICES"] != "a,b" || len(c.GetMounts()) != 1 || len(c.GetDevices()) != 2 ||
		!slices.Equal(c.GetCdiDevices(), []string{gpu + "=a", gpu + "=b"}) || len(c.GetAnnotations()) != 1 {
		t.Errorf("%v", c)
	}
	r.decided(wanting("two", 2), "rejected UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for "+gpu+". Requested: 2, Available: 1, which is unexpected")
	if got := r.admitted(wanting("three", 1)); got != "c" {
		t.Errorf("devices %s", got)
	}
	r.release("one")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("one"); return !ok })
	if got := r.admitted(wanting("two", 2)); got != "a,b" {
		t.Errorf("devices %s", got)
	}
	if got := len(p.Allocated()); got != 3 {
		t.Errorf("%d calls of Allocate", got)
	}
}

// TestAPluginThatPrefers is asked which devices are best.
func TestAPluginThatPrefers(t *testing.T) {
	r, dir := plugins(t)
	deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b", "c"), deviceplugin.Prefers)
	r.counts("3", "3")
	if got := r.admitted(wanting("one", 2)); got != "b,c" {
		t.Errorf("devices %s", got)
	}
}

// comes has a pod admitted while the test goes on, which has the decision.
func (r *rig) comes(p *v1.Pod) <-chan string {
	r.Helper()
	data, err := p.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	answer := make(chan string, 1)
	go func() {
		resp, err := r.client.Admit(r.Context(), &resourcev1.AdmitRequest{Pod: data})
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- decision(resp)
	}()
	return answer
}

// TestPodsThatComeAtOnce have each what the plugin prefers of what the others leave. There are
// so many devices that one is decided about while others are.
func TestPodsThatComeAtOnce(t *testing.T) {
	r, dir := plugins(t)
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("device-%04d", i))
	}
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices(ids...), deviceplugin.Prefers)
	r.counts("1k", "1k")
	resume := p.Hang()
	var answers []<-chan string
	for uid := range 4 {
		come := wanting(fmt.Sprint(uid), 1)
		come.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1m")
		answers = append(answers, r.comes(come))
	}
	r.Eventually("all are asked about", func() bool { return p.Asked() == len(answers) })
	resume()
	for _, answer := range answers {
		if got := <-answer; !strings.HasPrefix(got, "admitted") {
			t.Fatal(got)
		}
	}
	var all []string
	for uid := range answers {
		r.Eventually("the pod's item", func() bool { return r.devices(fmt.Sprint(uid)) != "" })
		all = append(all, r.devices(fmt.Sprint(uid)))
	}
	if slices.Sort(all); !slices.Equal(all, ids[len(ids)-len(all):]) {
		t.Errorf("devices %s", all)
	}
}

// TestAPreferenceThatComesLate counts when the pod comes again. Where the question is another
// by then, the plugin is asked once more; after that the pod is admitted without.
func TestAPreferenceThatComesLate(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b", "c", "d"), deviceplugin.Prefers)
	r.counts("4", "4")
	const waits = "not yet: waiting for the device plugin of " + gpu + ": it has not answered GetPreferredAllocation since "
	resume := p.Hang()
	one, two := r.comes(wanting("one", 1)), r.comes(wanting("two", 1))
	for _, got := range []string{<-one, <-two} {
		if !strings.HasPrefix(got, waits) {
			t.Fatal(got)
		}
	}
	resume()
	r.becomes(wanting("one", 1), "admitted")
	if got := r.admitted(wanting("one", 1)); got != "d" || p.Asked() != 2 {
		t.Errorf("the same question: devices %s, %d calls of GetPreferredAllocation", got, p.Asked())
	}
	resume = p.Hang()
	r.decided(wanting("two", 1), waits)
	if got := p.Asked(); got != 3 {
		t.Errorf("another question: %d calls of GetPreferredAllocation", got)
	}
	p.Set(deviceplugin.Devices("a", "b", "c", "d", "e")...)
	r.counts("5", "5")
	resume()
	r.becomes(wanting("two", 1), "admitted")
	if got := r.admitted(wanting("two", 1)); got != "a" || p.Asked() != 3 {
		t.Errorf("a third question: devices %s, %d calls of GetPreferredAllocation", got, p.Asked())
	}
}

// TestDevicesAndCPUsAreAligned: CPUs come from the NUMA node of the device that is free, and
// a pod whose device and CPUs have no node in common is refused, and holds nothing.
func TestDevicesAndCPUsAreAligned(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	edit := static(r)
	r.file("sys/devices/system/node/node0/cpulist", "0-1")
	r.file("sys/devices/system/node/node1/cpulist", "2-3")
	r.start(nil)
	r.configure(func(c *kubeletconfig.Config) {
		edit(c)
		c.Kubelet.TopologyManagerPolicy = "restricted"
	})
	r.answers()
	p := deviceplugin.Start(t, filepath.Join(r.machine, "device-plugins"), gpu, []*pluginapi.Device{
		deviceplugin.Device("a", 0), deviceplugin.Device("b", 1), deviceplugin.Device("c", 1), deviceplugin.Device("d", 1),
	})
	r.counts("4", "4")
	whole := func(uid string, devices int64) *v1.Pod {
		pod := guaranteed(uid, "1")
		list := pod.Spec.Containers[0].Resources.Limits.DeepCopy()
		list[gpu] = *resource.NewQuantity(devices, resource.DecimalSI)
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		return pod
	}
	if got := r.admitted(whole("one", 1)); got != "a" { // of the node with the lowest number, as its CPU
		t.Errorf("devices %s", got)
	}
	r.has("one", "1", "0,2-3")
	if got := r.admitted(whole("two", 2)); got != "b,c" {
		t.Errorf("devices %s", got)
	}
	r.has("two", "2", "0,3")
	p.Set(deviceplugin.Device("a", 0), deviceplugin.Device("b", 1), deviceplugin.Device("c", 1), deviceplugin.Device("d", 0))
	r.counts("4", "4")
	r.Eventually("refused once the plugin says that the device is elsewhere", func() bool {
		answer := decision(r.admit(whole("three", 1), false))
		if strings.HasPrefix(answer, "admitted") { // with the device where it was
			r.release("three")
		}
		return answer == "rejected TopologyAffinityError: Resources cannot be allocated with Topology locality"
	})
	r.has("two", "2", "0,3")
	if got := len(r.pods.Items()); got != 2 {
		t.Errorf("%d pods hold something", got)
	}
}

// TestAPluginThatPrestarts is called before each start of a container that has its devices,
// also after a restart, when it is to be waited for. One that does not answer keeps no pod
// from being released.
func TestAPluginThatPrestarts(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b"), deviceplugin.Prestarts)
	r.counts("2", "2")
	r.admitted(wanting("one", 1))
	start := func(ctx context.Context, uid, container string) error {
		_, err := r.client.PreStart(ctx, &resourcev1.PreStartRequest{Uid: uid, Container: container})
		return err
	}
	for range 2 {
		if err := start(t.Context(), "one", "c"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(start(t.Context(), "one", "other"), start(t.Context(), "other", "c")); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.Started()); got != "[[a] [a]]" {
		t.Errorf("calls of PreStartContainer: %s", got)
	}
	p.Refuse(os.ErrInvalid)
	if err := start(t.Context(), "one", "c"); err == nil || !strings.Contains(err.Error(), "device plugin PreStartContainer rpc failed with err: ") {
		t.Errorf("refused: %v", err)
	}
	p.Refuse(nil)
	before, _, _, _ := r.pods.State()
	r.stop()
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	if err := start(t.Context(), "one", "c"); err == nil || !strings.Contains(err.Error(), "waiting for the device plugin of "+gpu) {
		t.Errorf("away: %v", err)
	}
	if err := p.Come(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.counts("2", "2")
	if err := start(t.Context(), "one", "c"); err != nil {
		t.Fatal(err)
	}
	defer p.Hang()()
	hung, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- start(hung, "one", "c") }()
	r.Eventually("the plugin is called", func() bool { return p.Waiting() > 0 })
	r.release("one")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("one"); return !ok })
	stop()
	if err := <-ended; err == nil {
		t.Error("a plugin that hangs has answered")
	}
}

// TestAPluginThatRefuses: the pod fails with the plugin's words, and holds nothing.
func TestAPluginThatRefuses(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a"))
	r.counts("1", "1")
	p.Refuse(os.ErrInvalid)
	r.decided(wanting("one", 1), "rejected UnexpectedAdmissionError: Allocate failed due to rpc error: code = Internal desc = invalid argument, which is unexpected")
	p.Refuse(nil)
	if got := r.admitted(wanting("two", 1)); got != "a" {
		t.Errorf("devices %s", got)
	}
}

// TestAPluginThatRefusesAsOneThatIsAway: a pod does not wait for a plugin that is there and
// answers with the codes of a lost connection; it fails, or its start does, with the plugin's
// words.
func TestAPluginThatRefusesAsOneThatIsAway(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b"), deviceplugin.Prestarts)
	r.counts("2", "2")
	r.admitted(wanting("runs", 1))
	for _, code := range []codes.Code{codes.Unavailable, codes.Canceled} {
		said := status.Error(code, "vendor daemon: connection refused")
		p.Refuse(said)
		r.decided(wanting("one", 1), "rejected UnexpectedAdmissionError: Allocate failed due to "+said.Error()+", which is unexpected")
		_, err := r.client.PreStart(t.Context(), &resourcev1.PreStartRequest{Uid: "runs", Container: "c"})
		if want := "device plugin PreStartContainer rpc failed with err: " + said.Error(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	p.Refuse(nil)
	if got := r.admitted(wanting("two", 1)); got != "b" {
		t.Errorf("devices %s", got)
	}
}

// TestAPluginThatCrashes while it prepares devices is waited for, and called again; a pod with
// which it does so each time fails, and holds nothing.
func TestAPluginThatCrashes(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a"))
	r.counts("1", "1")
	p.Crash()
	const most = 3
	for crash := 1; crash <= most; crash++ {
		got, want := "", "not yet: waiting for a device plugin: "+gpu+": the device plugin does not answer: "
		r.Eventually("the plugin is called", func() bool {
			got = decision(r.admit(wanting("one", 1), false))
			return p.Crashed() == crash
		})
		if crash == most {
			want = "rejected UnexpectedAdmissionError: Allocate failed due to " + gpu + ": the device plugin does not answer: "
		}
		if !strings.HasPrefix(got, want) {
			t.Fatalf("after %d crashes: %s, want %s", crash, got, want)
		}
		if err := p.Come(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.Eventually("another waits anew", func() bool {
		return strings.HasPrefix(decision(r.admit(wanting("two", 1), false)), "not yet: waiting for a device plugin: "+gpu) && p.Crashed() == most+1
	})
}

// TestRunningPodsKeepTheirDevices while the plugin is away and after a restart, no other
// pod is given them, and pods that ask for devices wait, until the plugin is there again.
func TestRunningPodsKeepTheirDevices(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b"))
	r.counts("2", "2")
	r.admitted(wanting("one", 1))
	r.Eventually("healthy", func() bool { return r.health("one") == "a Healthy" })
	p.Set(&pluginapi.Device{ID: "a", Health: pluginapi.Unhealthy}, deviceplugin.Device("b"))
	r.Eventually("unhealthy", func() bool { return r.health("one") == "a Unhealthy" })
	p.Stop()
	r.counts("2", "0")
	r.Eventually("unknown", func() bool { return r.health("one") == "a Unknown" })
	r.Eventually("an event of the node", func() bool {
		for _, e := range r.events.Items() {
			if e.GetReason() == "DevicePluginNotReady" && e.GetObject().GetKind() == "Node" {
				return true
			}
		}
		return false
	})
	waits := "not yet: waiting for the device plugin of " + gpu
	r.decided(wanting("two", 1), waits)
	before, _, _, _ := r.pods.State()
	r.stop()
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	r.Eventually("admitted again", func() bool { return strings.HasPrefix(decision(r.admit(wanting("one", 1), true)), "admitted") })
	if got := r.devices("one"); got != "a" {
		t.Errorf("devices %s", got)
	}
	r.Eventually("still waiting", func() bool { return strings.HasPrefix(decision(r.admit(wanting("two", 1), false)), waits) })
	r.counts("2", "0")
	p.Set(deviceplugin.Devices("a", "b", "z")...)
	if err := p.Come(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.counts("3", "3")
	if got := r.admitted(wanting("two", 1)); got != "b" {
		t.Errorf("devices %s", got)
	}
	r.Eventually("healthy again", func() bool { return r.health("one") == "a Healthy" })
}

// TestAPluginThatHangs holds up the pods that need it, and no other; they start when it
// answers, with the devices that were chosen.
func TestAPluginThatHangs(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b"))
	r.counts("2", "2")
	resume := p.Hang()
	r.decided(wanting("one", 1), "not yet: waiting for the device plugin of "+gpu+": it has not answered Allocate since ")
	r.decided(wanting("two", 1), "not yet: waiting for the device plugin of "+gpu)
	r.decided(burstable("other", "1"), "admitted")
	r.plugin(gpu, "hung")
	resume()
	r.plugin(gpu, "serving")
	if one, two := r.admitted(wanting("one", 1)), r.admitted(wanting("two", 1)); one != "a" || two != "b" {
		t.Errorf("devices %s, %s", one, two)
	}
	if got := p.Allocated(); len(got) != 2 {
		t.Errorf("calls of Allocate: %v", got)
	}
}

// TestAPodThatIsGoneIsNotPrepared: once a pod is released while a plugin does not answer, no
// other is called for it when that one does: its devices are another pod's by then.
func TestAPodThatIsGoneIsNotPrepared(t *testing.T) {
	r, dir := plugins(t)
	first := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a"))
	second := deviceplugin.Start(t, dir, nic, deviceplugin.Devices("x"))
	r.plugin(gpu, "serving")
	r.plugin(nic, "serving")
	resume := first.Hang()
	r.decided(asking(wanting("one", 1), nic, 1), "not yet: waiting for the device plugin of "+gpu)
	r.release("one")
	if got := r.admitted(asking(burstable("two", "1"), nic, 1)); got != "x" {
		t.Errorf("devices %s", got)
	}
	resume()
	r.plugin(gpu, "serving")
	if got := second.Allocated(); len(got) != 1 {
		t.Errorf("calls of Allocate: %v", got)
	}
}

// TestAKubeletsDevices: a pod that a kubelet started has the devices that the kubelet's file
// says; no other pod is given them before, and the file has all that a kubelet reads.
func TestAKubeletsDevices(t *testing.T) {
	r := newRig(t, nil)
	dir := filepath.Join(r.machine, "device-plugins")
	r.settle()
	deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b"))
	r.counts("2", "2")
	r.admitted(wanting("one", 1))
	r.stop()
	// As if a kubelet had written the file: the journal knows nothing of the pod.
	if err := os.RemoveAll(r.Paths.StateOf("resource")); err != nil {
		t.Fatal(err)
	}
	before, _, _, _ := r.pods.State()
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b"))
	r.counts("2", "2")
	r.Eventually("the second is admitted", func() bool { return strings.HasPrefix(decision(r.admit(wanting("two", 1), false)), "admitted") })
	r.Eventually("it has the other device", func() bool { return r.devices("two") == "b" })
	if got := decision(r.admit(wanting("one", 1), true)); !strings.HasPrefix(got, "admitted") {
		t.Fatal(got)
	}
	r.Eventually("its devices", func() bool { return r.devices("one") == "a" })
	var item *resourcev1.PodAllocation
	if item, _ = r.pods.Get("one"); item.GetContainers()[0].GetEnvs()["DEVICES"] != "a" {
		t.Errorf("%v", item)
	}
}

// TestADeviceThatIsNotHealthyAnyMore keeps no pod that holds devices from being resized, be
// it its own or another's; a pod that holds none is refused.
func TestADeviceThatIsNotHealthyAnyMore(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b"))
	r.counts("2", "2")
	one, two := wanting("one", 1), wanting("two", 1)
	r.admitted(one)
	r.admitted(two)
	p.Set(deviceplugin.Device("a"), &pluginapi.Device{ID: "b", Health: pluginapi.Unhealthy})
	r.counts("2", "1")
	for _, pod := range []*v1.Pod{one, two} {
		pod.Generation = 2
		pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("500m")
		if item := r.resize(pod); item.GetPending() != nil || has(t, item) != "500m" {
			t.Errorf("pod %s: %v", pod.UID, item.GetPending())
		}
	}
	r.decided(wanting("three", 1), "rejected UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for "+gpu+". Requested: 1, Available: 0, which is unexpected")
}

// TestAKubeletsPodBesideADeviceThatIsNotHealthy: a pod that is to be started again has its
// device by the kubelet's file, whatever another pod's is.
func TestAKubeletsPodBesideADeviceThatIsNotHealthy(t *testing.T) {
	r := newRig(t, nil)
	entry := func(uid, id string) checkpoint.PodDevicesEntry {
		return checkpoint.PodDevicesEntry{PodUID: uid, ContainerName: "c", ResourceName: gpu, DeviceIDs: checkpoint.DevicesPerNUMA{checkpoint.WithoutNUMA: {id}}}
	}
	data, err := checkpoint.Marshal([]checkpoint.PodDevicesEntry{entry("one", "a"), entry("two", "b")}, map[string][]string{gpu: {"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.file("device-plugins/"+checkpoint.Name, string(data))
	r.start(nil)
	r.configure(func(c *kubeletconfig.Config) {
		off := false
		c.Kubelet.CgroupsPerQOS, c.Kubelet.EnforceNodeAllocatable = &off, nil
	})
	r.answers()
	r.Eventually("the other runs on", func() bool { return strings.HasPrefix(decision(r.admit(wanting("two", 1), true)), "admitted") })
	deviceplugin.Start(t, filepath.Join(r.machine, "device-plugins"), gpu, []*pluginapi.Device{
		deviceplugin.Device("a"), {ID: "b", Health: pluginapi.Unhealthy},
	})
	r.counts("2", "1")
	if got := r.admitted(wanting("one", 1)); got != "a" {
		t.Errorf("devices %s", got)
	}
}

// TestDevicesOfAPodThatIsNoMore: what the kubelet's file has of a pod that ended while nothing
// watched is free, once config says that there is no such pod; also where pods have no cgroups.
func TestDevicesOfAPodThatIsNoMore(t *testing.T) {
	r := newRig(t, nil)
	dir := filepath.Join(r.machine, "device-plugins")
	data, err := checkpoint.Marshal([]checkpoint.PodDevicesEntry{{PodUID: "was", ContainerName: "c", ResourceName: gpu,
		DeviceIDs: checkpoint.DevicesPerNUMA{checkpoint.WithoutNUMA: {"a"}}}}, map[string][]string{gpu: {"a"}})
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.file("device-plugins/"+checkpoint.Name, string(data))
	r.start(nil)
	r.configure(func(c *kubeletconfig.Config) {
		off := false
		c.Kubelet.CgroupsPerQOS, c.Kubelet.EnforceNodeAllocatable = &off, nil
	})
	r.answers()
	deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a"))
	r.counts("1", "1")
	if got := decision(r.admit(wanting("next", 1), false)); strings.HasPrefix(got, "admitted") {
		t.Errorf("%s: another pod may have its device", got)
	}
	r.desired.SetComplete(r.Context(), true)
	r.Eventually("its device is another's", func() bool { return strings.HasPrefix(decision(r.admit(wanting("next", 1), false)), "admitted") })
	r.Eventually("and so is the file's", func() bool {
		entries, _, err := checkpoint.Read(filepath.Join(dir, checkpoint.Name))
		return err == nil && len(entries) == 1 && entries[0].PodUID == "next"
	})
}

// TestDevicesAfterABoot: nothing runs and the journal is lost. A pod that is admitted anew has
// the devices that the kubelet's file had of it, also where another is free.
func TestDevicesAfterABoot(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b", "c"), deviceplugin.Prefers)
	r.counts("3", "3")
	if one, two := r.admitted(wanting("one", 1)), r.admitted(wanting("two", 1)); one != "c" || two != "b" {
		t.Fatalf("devices %s, %s", one, two)
	}
	p.Stop()
	before, _, _, _ := r.pods.State()
	r.stop()
	if err := os.RemoveAll(r.Paths.StateOf("resource")); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"one", "two"} {
		if err := (cgroup.Tree{Driver: "cgroupfs"}).Remove(r.kubepods("burstable", "pod"+uid)); err != nil {
			t.Fatal(err)
		}
	}
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	if err := p.Come(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Eventually("two is admitted anew", func() bool { return strings.HasPrefix(decision(r.admit(wanting("two", 1), false)), "admitted") })
	if two, one := r.admitted(wanting("two", 1)), r.admitted(wanting("one", 1)); one != "c" || two != "b" {
		t.Errorf("devices %s, %s", one, two)
	}
	if got := len(p.Allocated()); got != 4 {
		t.Errorf("%d calls of Allocate", got)
	}
}

// TestABootChecksDevices: after a boot a pod waits until the plugins of its devices are there.
// It keeps what is there still, and is refused when that is not; a restart checks nothing.
func TestABootChecksDevices(t *testing.T) {
	r, dir := plugins(t)
	again := func(boot string) {
		before, _, _, _ := r.pods.State()
		r.stop()
		r.file("proc/sys/kernel/random/boot_id", boot)
		r.start(nil)
		r.Eventually("another life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	}
	unready := func(uid string) string { item, _ := r.pods.Get(uid); return item.GetUnready() }
	again("b1")
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a", "b"))
	r.counts("2", "2")
	r.admitted(wanting("one", 1))
	r.admitted(wanting("two", 1))
	p.Stop()
	again("b1")
	if one := unready("one"); one != "" {
		t.Errorf("after a restart: %s", one)
	}
	again("b2")
	waits := "waiting for the device plugin of " + gpu
	r.Eventually("both wait", func() bool {
		return strings.HasPrefix(unready("one"), waits) && strings.HasPrefix(unready("two"), waits)
	})
	p.Set(deviceplugin.Devices("a", "x")...)
	if err := p.Come(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Eventually("one may start", func() bool { return unready("one") == "" })
	r.Eventually("two is refused", func() bool {
		item, _ := r.pods.Get("two")
		return item.GetEviction().GetReason() == "UnexpectedAdmissionError" && item.GetEviction().GetMessage() ==
			"Allocate failed due to previously allocated devices are no longer healthy; cannot allocate unhealthy devices "+gpu+", which is unexpected"
	})
	if item, _ := r.pods.Get("one"); item.GetEviction() != nil || r.devices("one") != "a" {
		t.Errorf("%v", item)
	}
	p.Set(deviceplugin.Devices("x", "y", "z")...)
	again("b2")
	if err := p.Come(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Eventually("another is admitted", func() bool { return strings.HasPrefix(decision(r.admit(wanting("three", 1), false)), "admitted") })
	if item, _ := r.pods.Get("one"); item.GetEviction() != nil || item.GetUnready() != "" {
		t.Errorf("judged again in the same boot: %v", item)
	}
}

// gets has a pod admitted whatever is killed meanwhile; the plugin registers again, as
// plugins do whose socket is removed.
func (s *siege) gets(p *deviceplugin.Plugin, uid string) {
	s.Helper()
	data, err := wanting(uid, 1).Marshal()
	if err != nil {
		s.Fatal(err)
	}
	s.Eventually(uid+" admitted", func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		if s.call(ctx, &resourcev1.AdmitRequest{Pod: data}) == nil {
			return true
		}
		_ = p.Come(ctx) // it may be killed in the middle
		return false
	})
}

// TestKillWhileDevicesAreGiven kills the service at each write while a pod gets a device:
// the pod has one in the end, another pod has the other, and both are free when the pods
// are gone.
func TestKillWhileDevicesAreGiven(t *testing.T) {
	s := newSiege(t, 16)
	p := deviceplugin.Start(t, filepath.Join(s.machine, "device-plugins"), gpu, deviceplugin.Devices("a", "b"))
	s.counts("2", "2") // a life that knows nothing of the plugin admits without devices
	for _, faults := range []string{
		"resource.devices.answered=kill", "store.write=kill", "store.written=kill", "file.write=kill", "file.write=1*off->kill",
	} {
		if !s.killedIn(faults, func() bool { s.gets(p, "one"); return true }) {
			if !strings.HasPrefix(faults, "file") { // the kubelet's files are written later
				t.Errorf("%s: not killed", faults)
			}
			s.process.Kill()
			s.live("")
		}
		s.gets(p, "one")
		s.gets(p, "two")
		s.Eventually("each has a device", func() bool {
			both := []string{s.devices("one"), s.devices("two")}
			slices.Sort(both)
			return fmt.Sprint(both) == "[a b]"
		})
		for _, uid := range []string{"one", "two"} {
			s.insist(&resourcev1.ReleaseRequest{Uid: uid})
			s.gone(uid)
		}
	}
}
