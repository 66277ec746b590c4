package resource

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/pod"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
)

// ensureTree makes kubepods and its classes, and every pod's cgroup.
func (s *Service) ensureTree(ctx context.Context, now *settings) error {
	if !now.qos() {
		return nil
	}
	tree := s.tree(now.driver)
	for i := 1; i <= len(now.root); i++ {
		if err := tree.Ensure(now.root[:i], cgroup.Values{}); err != nil {
			return err
		}
	}
	if err := s.ensureKubepods(ctx, now); err != nil {
		return err
	}
	least := uint64(pod.MinShares)
	if err := tree.Ensure(pod.QOSCgroup(now.root, v1.PodQOSBestEffort), cgroup.Values{CgroupResources: pod.CgroupResources{CPUShares: &least}}); err != nil {
		return err
	}
	if err := s.ensureBurstable(now); err != nil {
		return err
	}
	for _, uid := range s.uids() {
		s.turns.LockKey(uid)
		s.mu.Lock()
		h := s.held[uid]
		s.mu.Unlock()
		if h != nil && !h.Releasing {
			if err := s.ensurePod(h, now); err != nil {
				s.kit.Log.Error("pod cgroup", "uid", uid, "error", err.Error())
			}
		}
		_ = s.turns.UnlockKey(uid) // it is locked
	}
	return nil
}

// ensureKubepods makes the parent of all pods and bounds it: by the node's capacity
// and, where allocatable is to be enforced, by what is reserved of it. A bound the
// kernel refuses (memory in use already) is an event: pods go on without.
func (s *Service) ensureKubepods(ctx context.Context, now *settings) error {
	tree, name := s.tree(now.driver), pod.KubepodsCgroup(now.root)
	if err := tree.Ensure(name, cgroup.Values{}); err != nil {
		return err
	}
	enforced := slices.Contains(now.conf.Kubelet.EnforceNodeAllocatable, "pods")
	bound, err := s.podsBound(now, enforced)
	if err == nil {
		err = tree.Ensure(name, bound)
	}
	switch {
	case err != nil:
		s.emit(ctx, now, v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", fmt.Sprintf("bounds of %s not set: %v", name.Path(now.driver), err))
	case enforced:
		s.emit(ctx, now, v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
	}
	return nil
}

// emit says something of the node as a whole.
func (s *Service) emit(ctx context.Context, now *settings, kind, reason, message string) {
	err := s.events.Emit(ctx, &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Node", Name: now.conf.Node.Name, Uid: now.conf.Node.Name},
		Type:   kind, Reason: reason, Message: message, Time: timestamppb.New(s.now()),
	})
	if err != nil {
		s.kit.Log.Error("event", "reason", reason, "error", err.Error())
	}
}

// qos tells whether pods have cgroups of their own (cgroupsPerQOS).
func (now *settings) qos() bool {
	q := now.conf.Kubelet.CgroupsPerQOS
	return q == nil || *q
}

// podsBound is what all pods together may use. The eviction thresholds are not
// taken out: they are there to be noticed before the kernel kills.
func (s *Service) podsBound(now *settings, enforced bool) (cgroup.Values, error) {
	processes, _, err := s.host.Processes()
	if err != nil {
		return cgroup.Values{}, err
	}
	left := now.capacity.DeepCopy()
	left[machine.PID] = *resource.NewQuantity(processes, resource.DecimalSI)
	if enforced {
		k := now.conf.Kubelet.DeepCopy()
		k.EvictionHard = nil
		reserved, err := machine.Reserved(now.capacity, k)
		if err != nil {
			return cgroup.Values{}, err
		}
		left = machine.Less(left, reserved)
	}
	pids, memory, shares := left.Name(machine.PID, resource.DecimalSI).Value(), left.Memory().Value(), pod.MilliCPUToShares(left.Cpu().MilliValue())
	return cgroup.Values{CgroupResources: pod.CgroupResources{CPUShares: &shares, Memory: &memory}, PIDs: &pids}, nil
}

// ensureBurstable gives the burstable class the shares its pods ask for.
func (s *Service) ensureBurstable(now *settings) error {
	if !now.qos() {
		return nil
	}
	s.burstable.Lock()
	defer s.burstable.Unlock()
	var milli int64
	s.mu.Lock()
	for _, h := range s.held {
		if !h.Releasing {
			milli += h.burstableMilli
		}
	}
	s.mu.Unlock()
	shares := pod.MilliCPUToShares(milli)
	return s.tree(now.driver).Ensure(pod.QOSCgroup(now.root, v1.PodQOSBurstable), cgroup.Values{CgroupResources: pod.CgroupResources{CPUShares: &shares}})
}

func podValues(now *settings, p *v1.Pod) cgroup.Values {
	k := now.conf.Kubelet
	enforce := k.CPUCFSQuota == nil || *k.CPUCFSQuota
	quota := 100 * time.Millisecond
	if k.CPUCFSQuotaPeriod != nil && k.CPUCFSQuotaPeriod.Duration > 0 {
		quota = k.CPUCFSQuotaPeriod.Duration
	}
	values := cgroup.Values{CgroupResources: pod.PodCgroupResources(p, enforce, quota)}
	if k.PodPidsLimit != nil && *k.PodPidsLimit > 0 {
		values.PIDs = k.PodPidsLimit
	}
	return values
}

// cgroupOf is where a pod's cgroup goes.
func (now *settings) cgroupOf(p *v1.Pod) pod.CgroupName {
	if !now.qos() {
		return nil
	}
	return pod.PodCgroupOf(now.root, pod.QOS(p), p.UID)
}
