// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
)

// allocation is what the checkpoint keeps of a pod.
type allocation struct {
	// Pod as Kubernetes protobuf.
	Pod []byte `json:"pod"`
	// Cgroup is the pod's, part by part from the root.
	Cgroup pod.CgroupName   `json:"cgroup"`
	Driver pod.CgroupDriver `json:"driver"`
	// Chosen is what allocators chose, as protobuf (package allocate).
	Chosen []byte `json:"chosen,omitempty"`
	// Boot of the node in which that was chosen, or found to be there still.
	Boot string `json:"boot,omitempty"`
	// Releasing: the pod is to lose what it holds.
	Releasing bool `json:"releasing,omitempty"`
	// Warned: an event has said whose user it runs as.
	Warned bool `json:"warned,omitempty"`
	resizing
	// Evicting is the verdict that the pod must go; nil for none.
	Evicting *evicting `json:"evicting,omitempty"`
	// OOMKilled are the IDs of the newest containers in which the kernel has killed a process
	// for want of memory, the last one last.
	OOMKilled []string `json:"oomKilled,omitempty"`
}

// mostOOMKilled bounds allocation.OOMKilled: statuses tell of a container and of the one
// before it.
const mostOOMKilled = 16

// resizing is what the checkpoint keeps of a pod's resizes.
type resizing struct {
	// Asked identifies the resources asked for last; Wish is a pod's sizes, and
	// Generation its generation, while they are not allocated.
	Asked      string `json:"asked,omitempty"`
	Wish       []byte `json:"wish,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Pending is the last judgement about the wish; nil before the first.
	Pending *pending `json:"pending,omitempty"`
	// Allocation counts allocations, Allocated is the generation of the newest,
	// Settled the newest that the containers have. Room is what the pod's cgroup
	// needs until then.
	Allocation uint64               `json:"allocation,omitempty"`
	Allocated  int64                `json:"allocated,omitempty"`
	Settled    uint64               `json:"settled,omitempty"`
	Room       *pod.CgroupResources `json:"room,omitempty"`
}

// pending is a judgement, and the time of the first like it.
type pending struct {
	Reason     string    `json:"reason"`
	Message    string    `json:"message,omitempty"`
	Generation int64     `json:"generation,omitempty"`
	Since      time.Time `json:"since"`
}

// evicted is the reason of verdicts for want of resources, or by limits of the pod.
const evicted = "Evicted"

// evicting is what the checkpoint keeps of the verdict that a pod must go.
type evicting struct {
	// Reason is empty for [evicted].
	Reason      string            `json:"reason,omitempty"`
	Message     string            `json:"message"`
	Signal      string            `json:"signal"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Grace       int64             `json:"grace"`
	At          time.Time         `json:"at"`
}

// held is an allocation in memory. But for busy, order and left, which belong to the pod's
// turn, it is guarded by ledger.mu and written in the pod's turn.
type held struct {
	allocation
	pod    *v1.Pod
	chosen *resourcev1.Chosen // never nil
	stored bool               // the checkpoint has it
	err    string             // what holds the release up
	// inactive: podworker said so of the pod when it asked for another. It is not kept.
	inactive bool
	// busy: the cgroup held processes when it was to be removed; order is the one to kill them,
	// and left the event about them.
	busy  bool
	order *order
	left  string
	// wish is the pod with what it asks for in vain, so far; blocked is why its
	// cgroup has no room for its allocation.
	wish    *v1.Pod
	blocked string
	// unchecked is why it is not known yet whether what was chosen is there after a boot.
	unchecked string
	// unready is why no sandbox may be made yet; cdi are devices of claims, by container.
	unready string
	cdi     map[string][]string
	// health of the devices of claims.
	health []*resourcev1.DeviceHealth
	// burstableMilli is the CPU a Burstable pod asks for, 0 for others.
	burstableMilli int64
}

func newHeld(a allocation, p *v1.Pod) *held {
	h := &held{allocation: a, pod: p, chosen: &resourcev1.Chosen{}, burstableMilli: burstableMilli(p)}
	if dra.Uses(p) {
		h.unready = dra.ErrPending.Error()
	}
	return h
}

func burstableMilli(p *v1.Pod) int64 {
	if pod.QOS(p) != v1.PodQOSBurstable {
		return 0
	}
	requests := pod.Requests(p)
	return requests.Cpu().MilliValue()
}

// kept is what the checkpoint has of a pod. An error of its own is about a part that the
// pod can do without; it is nil where nothing can be made of the record.
func kept(a allocation, now time.Time) (*held, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(a.Pod); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	h := newHeld(a, p)
	h.stored = true
	if h.Evicting != nil {
		h.Evicting.At = restored(h.Evicting.At, now)
	}
	if h.Asked == "" { // kept by a version that knew no resize
		h.Asked = pod.SizesID(p)
	}
	if err := proto.Unmarshal(a.Chosen, h.chosen); err != nil {
		return h, fmt.Errorf("what was chosen for the pod: %w", err)
	}
	if len(a.Wish) > 0 {
		sizes := &v1.PodSpec{}
		if err := sizes.Unmarshal(a.Wish); err != nil {
			h.Asked, h.Wish = "", nil
			return h, fmt.Errorf("resize: %w", err)
		}
		h.wish = pod.WithSizes(p, sizes)
	}
	return h, nil
}

func (h *held) uid() string { return string(h.pod.UID) }

// parent is the pod's cgroup as the CRI's cgroup_parent takes it.
func (h *held) parent() string {
	if len(h.Cgroup) == 0 {
		return ""
	}
	return h.Cgroup.Parent(h.Driver)
}

// take makes a pod's allocation that of p; callers hold ledger.mu.
func (h *held) take(p *v1.Pod) {
	h.pod = p
	h.burstableMilli = burstableMilli(p)
}

// item is what the feed has of the pod.
func (h *held) item() (*resourcev1.PodAllocation, error) {
	sizes, err := pod.Sizes(h.pod).Marshal()
	if err != nil {
		return nil, err
	}
	item := &resourcev1.PodAllocation{
		Uid: h.uid(), Namespace: h.pod.Namespace, Name: h.pod.Name,
		CgroupParent: h.parent(), Releasing: h.Releasing, Error: h.err, Eviction: h.evictionItem(),
		Sizes: sizes, Asked: h.Asked, Allocation: h.Allocation, Settled: h.Settled, Generation: h.Allocated, Blocked: h.blocked,
		Containers: withDevices(h.pod, h.chosen.GetContainers(), h.cdi), Unready: cmp.Or(h.unready, h.unchecked),
		OomKilled: h.OOMKilled,
	}
	if h.Pending != nil {
		item.Pending = &resourcev1.PendingResize{Reason: h.Pending.Reason, Message: h.Pending.Message, Generation: h.Pending.Generation}
	}
	if h.Room != nil && h.Room.Memory != nil {
		item.MemoryLimit = max(*h.Room.Memory, 0)
	}
	return item, nil
}

func (h *held) evictionItem() *resourcev1.Eviction {
	e := h.Evicting
	if e == nil {
		return nil
	}
	return &resourcev1.Eviction{Reason: cmp.Or(e.Reason, evicted), Message: e.Message, Signal: e.Signal, GraceSeconds: e.Grace, Time: timestamppb.New(e.At)}
}

// withDevices adds CDI devices to what containers are made with.
func withDevices(p *v1.Pod, chosen []*resourcev1.ContainerAllocation, cdi map[string][]string) []*resourcev1.ContainerAllocation {
	if len(cdi) == 0 {
		return chosen
	}
	all := map[string]*resourcev1.ContainerAllocation{}
	var whole []*resourcev1.ContainerAllocation
	for _, c := range chosen {
		c = proto.CloneOf(c)
		all[c.GetName()], whole = c, append(whole, c)
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			name := list[i].Name
			if len(cdi[name]) == 0 {
				continue
			}
			if all[name] == nil {
				all[name] = &resourcev1.ContainerAllocation{Name: name}
				whole = append(whole, all[name])
			}
			all[name].CdiDevices = append(all[name].CdiDevices, cdi[name]...)
		}
	}
	return whole
}
