// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/test/cgrouptest"
	"github.com/sextant-node/sextant/test/standin"
)

// rig is a resource service on real cgroups and a made-up machine, between
// stand-ins for config and pleg, seen through its socket.
type rig struct {
	*standin.House
	machine string // the made-up machine's root
	cgroup  pod.CgroupName
	kubelet *feed.Owner[*configv1.KubeletConfig]
	objects *feed.Owner[*configv1.Object]
	desired *feed.Owner[*configv1.DesiredPod]
	server  *apiServer
	worker  *feed.Owner[*podworkerv1.NodeState]
	runtime *feed.Owner[*plegv1.RuntimeState]
	client  resourcev1.ResourceServiceClient
	pods    *feed.Replica[*resourcev1.PodAllocation]
	node    *feed.Replica[*resourcev1.NodeResources]
	events  *feed.Replica[*eventv1.Event]
	kit     *service.Kit
	stop    func()
	looks   int
}

func newRig(t testing.TB, edit func(*resource.Deps)) *rig {
	t.Helper()
	r := &rig{House: standin.New(t), machine: t.TempDir(), cgroup: cgrouptest.Root(t)}
	r.file("sys/devices/system/cpu/online", "0-3")
	r.file("proc/sys/kernel/osrelease", "6.1.0")
	r.file("proc/sys/kernel/pid_max", "32768")
	r.file("proc/loadavg", "0 0 0 1/100 1")
	r.memory("8388608")
	config := r.Kit(house.Config)
	r.kubelet = service.Owner(config, house.ConfigKubelet)
	r.objects = service.Owner(config, house.ConfigObjects)
	r.desired = service.Owner(config, house.ConfigPods)
	r.server = &apiServer{}
	configv1.RegisterConfigServiceServer(config.Server, r.server)
	r.Start(config)
	pleg := r.Kit(house.Pleg)
	r.runtime = service.Owner(pleg, house.PlegRuntime)
	r.Start(pleg)
	worker := r.Kit(house.PodWorker)
	r.worker = service.Owner(worker, house.PodWorkerNode)
	r.Start(worker)
	r.start(edit)
	r.client = resourcev1.NewResourceServiceClient(r.Dial(house.Resource))
	r.pods = standin.Read(r.House, house.ResourcePods)
	r.node = standin.Read(r.House, house.ResourceNode)
	r.events = standin.Read(r.House, house.ResourceEvents)
	return r
}

// apiServer has the Node as config reads it there; nil while it is away.
type apiServer struct {
	configv1.UnimplementedConfigServiceServer
	node atomic.Pointer[v1.Node]
}

func (a *apiServer) Node(context.Context, *configv1.NodeRequest) (*configv1.NodeResponse, error) {
	node := a.node.Load()
	if node == nil {
		return nil, rpc.Unavailable.Errorf("no API server")
	}
	data, err := node.Marshal()
	return &configv1.NodeResponse{Node: data}, err
}

// start starts the service, a second time on what the first life left. Then it waits until the
// readers have come to this life; their items may be of the former until it is complete.
func (r *rig) start(edit func(*resource.Deps)) {
	r.Helper()
	if r.pods != nil {
		pods, _, _, _ := r.pods.State()
		node, _, _, _ := r.node.State()
		defer r.Eventually("another life", func() bool {
			p, _, _, _ := r.pods.State()
			n, _, _, _ := r.node.State()
			return p.Epoch != pods.Epoch && n.Epoch != node.Epoch
		})
	}
	deps := resource.Deps{Kit: r.Kit(house.Resource), Machine: machine.Host{Root: r.machine}}
	if edit != nil {
		edit(&deps)
	}
	if _, err := resource.New(resource.Config{RootDir: r.machine}, deps); err != nil {
		r.Fatal(err)
	}
	r.kit, r.stop = deps.Kit, r.Start(deps.Kit)
}

func (r *rig) file(name, text string) {
	r.Helper()
	path := filepath.Join(r.machine, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		r.Fatal(err)
	}
}

// memory sets what the machine has available of its 8 GiB.
func (r *rig) memory(availableKB string) {
	r.file("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: "+availableKB+" kB")
}

// configure publishes a configuration for the test's cgroup: standalone, and
// with whatever edit changes.
func (r *rig) configure(edit func(*kubeletconfig.Config)) {
	r.Helper()
	conf := &kubeletconfig.Config{
		Kubelet: kubeletv1beta1.KubeletConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: kubeletconfig.APIVersion, Kind: kubeletconfig.Kind},
			MaxPods:  110, CgroupRoot: "/" + r.cgroup[0], CgroupDriver: "cgroupfs", EnforceNodeAllocatable: []string{"pods"},
			EvictionHard: map[string]string{"memory.available": "1Gi"},
		},
		Node: kubeletconfig.Node{Name: "n1"},
	}
	if edit != nil {
		edit(conf)
	}
	standin.SetKubelet(r.House, r.kubelet, conf)
}

// answers publishes that the runtime has answered.
func (r *rig) answers() {
	r.Helper()
	status, err := proto.Marshal(&runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}})
	if err != nil {
		r.Fatal(err)
	}
	standin.Set(r.House, r.runtime, "runtime", &plegv1.RuntimeState{
		Responding: true, Since: timestamppb.New(time.Unix(1, 0)), Status: status, CgroupDriver: "cgroupfs",
	})
}

// look has the service look: something it reads has changed.
func (r *rig) look() {
	r.Helper()
	r.looks++
	state, _ := r.runtime.Get("runtime")
	state = proto.CloneOf(state)
	state.Version = fmt.Sprint(r.looks)
	standin.Set(r.House, r.runtime, "runtime", state)
}

// settle brings the service to where it admits pods.
func (r *rig) settle() {
	r.Helper()
	r.configure(nil)
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
}

func burstable(uid, cpu string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "name-" + uid, UID: types.UID(uid)}}
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": apiresource.MustParse(cpu)}}}}
	return p
}

func (r *rig) admit(p *v1.Pod, running bool) *resourcev1.AdmitResponse {
	r.Helper()
	return r.admitBeside(p, running)
}

// admitBeside asks for admission as podworker does when some pods are inactive.
func (r *rig) admitBeside(p *v1.Pod, running bool, inactive ...string) (resp *resourcev1.AdmitResponse) {
	r.Helper()
	data, err := p.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	standin.Commanded(r.House, r.pods, func() (standin.Answer, error) {
		resp, err = r.client.Admit(r.Context(), &resourcev1.AdmitRequest{Pod: data, Running: running, Inactive: inactive})
		return resp, err
	})
	return resp
}

// decision of an answer, in one line.
func decision(resp *resourcev1.AdmitResponse) string {
	switch resp.GetDecision() {
	case resourcev1.Decision_DECISION_ADMITTED:
		return "admitted " + resp.GetCgroupParent()
	case resourcev1.Decision_DECISION_REJECTED:
		return "rejected " + resp.GetReason() + ": " + resp.GetMessage()
	case resourcev1.Decision_DECISION_NOT_YET:
		return "not yet: " + resp.GetMessage()
	}
	return fmt.Sprint(resp)
}

func (r *rig) release(uid string) {
	r.Helper()
	standin.Commanded(r.House, r.pods, func() (standin.Answer, error) {
		return r.client.Release(r.Context(), &resourcev1.ReleaseRequest{Uid: uid})
	})
}

// kubepods names a cgroup below the test's.
func (r *rig) kubepods(parts ...string) pod.CgroupName {
	name := r.cgroup.Child("kubepods")
	for _, part := range parts {
		name = name.Child(part)
	}
	return name
}

func (r *rig) shares(name pod.CgroupName) string {
	r.Helper()
	return cgrouptest.Value(r, name, "cpu/cpu.shares", "cpu.weight")
}

// sharesOf is what the kernel shows for so many shares.
func sharesOf(n uint64) string {
	if cgrouptest.V2() {
		n = pod.SharesToWeight(n)
	}
	return fmt.Sprint(n)
}
