package resource

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
	"github.com/sextant-node/sextant/services/resource/internal/pressure"
	"github.com/sextant-node/sextant/services/resource/internal/resize"
)

// Admit implements ResourceService.
func (s *Service) Admit(ctx context.Context, req *resourcev1.AdmitRequest) (*resourcev1.AdmitResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, rpc.Invalid.Errorf("pod: %w", err)
	}
	uid := string(p.UID)
	if uid == "" || strings.ContainsAny(uid, "/_\x00") || strings.HasPrefix(uid, ".") {
		return nil, rpc.Invalid.Errorf("pod.metadata.uid: %q cannot be part of a cgroup's name", uid)
	}
	if err := fault.Hit(ctx, "resource.admit"); err != nil {
		return nil, rpc.Unavailable.Errorf("%w", err)
	}
	s.turns.LockKey(uid)
	defer s.turns.UnlockKey(uid) //nolint:errcheck // it is locked
	h, now, answer, err := s.decide(p, req.GetRunning())
	if h == nil {
		return answer, err
	}
	return s.allocate(ctx, h, now, req.GetRunning())
}

// decide answers, or returns the allocation to carry out: a pod that fits is
// counted from here on.
func (s *Service) decide(p *v1.Pod, running bool) (*held, *settings, *resourcev1.AdmitResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, now := string(p.UID), s.settings
	h := s.held[uid]
	switch {
	case h != nil && h.Releasing:
		return nil, nil, nil, rpc.Conflict.Errorf("pod %s: what it holds is being released", uid)
	case now == nil && h != nil && running:
		return nil, nil, s.admitted(h), nil
	case now == nil:
		return nil, nil, notYet("the node's resources are not known yet: " + s.waiting), nil
	case h != nil:
		return h, now, nil, nil
	}
	if !running {
		if refusal := s.judge(p, now); refusal != nil {
			return nil, nil, refusal, nil
		}
	}
	data, err := p.Marshal()
	if err != nil {
		return nil, nil, nil, err
	}
	h = newHeld(allocation{Pod: data, Cgroup: now.cgroupOf(p), Driver: now.driver, resizing: resizing{Asked: pod.SizesID(p)}}, p)
	s.held[uid] = h
	return h, now, nil, nil
}

func notYet(message string) *resourcev1.AdmitResponse {
	return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_NOT_YET, Message: message}
}

// judge returns the answer to a pod that is not admitted now, or nil.
func (s *Service) judge(p *v1.Pod, now *settings) *resourcev1.AdmitResponse {
	node, missing := s.admitNode(p, now)
	if missing != nil {
		return missing
	}
	if r := admit.Judge(p, s.others(string(p.UID)), node); r != nil {
		s.metrics.rejections.WithLabelValues(rejectionLabel(r.Reason)).Inc()
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: r.Reason, Message: r.Message}
	}
	return nil
}

// admitNode is the node a pod is judged against, or the answer while it is not
// known; callers hold Service.mu.
func (s *Service) admitNode(p *v1.Pod, now *settings) (admit.Node, *resourcev1.AdmitResponse) {
	node := admit.Node{
		Name: now.conf.Node.Name, Allocatable: now.allocatable, Sysctls: now.sysctls,
		Labels: map[string]string{
			v1.LabelHostname: now.conf.Node.Name, v1.LabelOSStable: s.facts.OperatingSystem, v1.LabelArchStable: s.facts.Architecture,
		},
		StrictGroups: s.strictGroups(), AppArmor: s.facts.AppArmor,
		MemoryPressure: s.pressure[pressure.Memory].Under,
		DiskPressure:   s.pressure[pressure.Disk].Under,
		PIDPressure:    s.pressure[pressure.PID].Under,
	}
	for name, value := range now.conf.Node.Labels {
		node.Labels[name] = value
	}
	if object := s.nodeObject(now.conf.Node.Name); object != nil {
		node.Labels, node.Taints = object.Labels, object.Spec.Taints
	} else if !now.conf.Standalone() && !isStatic(p) {
		return node, notYet("the Node object is not known yet")
	}
	return node, nil
}

// others are the pods that hold something beside one; callers hold Service.mu.
func (s *Service) others(uid string) []*v1.Pod {
	var all []*v1.Pod
	for other, h := range s.held {
		if other != uid {
			all = append(all, h.pod)
		}
	}
	return all
}

// strictGroups tells whether the runtime knows supplementalGroupsPolicy Strict.
func (s *Service) strictGroups() bool {
	state, ok := s.runtime.Get("runtime")
	if !ok {
		return false
	}
	answer := &runtimeapi.StatusResponse{}
	if err := proto.Unmarshal(state.GetStatus(), answer); err != nil {
		s.kit.Log.Error("runtime status", "error", err.Error())
		return false
	}
	return answer.GetFeatures().GetSupplementalGroupsPolicy()
}

// allocate writes the checkpoint, then makes the cgroup; callers hold the pod's
// turn. A pod that runs is never refused, nor is one that was admitted before.
func (s *Service) allocate(ctx context.Context, h *held, now *settings, running bool) (*resourcev1.AdmitResponse, error) {
	uid, before := string(h.pod.UID), h.stored
	if !h.stored {
		if err := s.table.Put(uid, h.allocation); err != nil {
			s.forget(uid)
			return nil, err
		}
		h.stored = true
	}
	if err := s.ensurePod(h, now); err != nil {
		s.kit.Log.Error("pod cgroup", "uid", uid, "error", err.Error())
		if !before && !running {
			s.forget(uid)
			if err := s.table.Delete(uid); err != nil {
				s.kit.Log.Error("checkpoint", "uid", uid, "error", err.Error())
			}
			return notYet(err.Error()), nil
		}
	}
	if h.burstableMilli > 0 {
		if err := s.ensureBurstable(now); err != nil {
			s.kit.Log.Error("burstable cgroup", "error", err.Error())
		}
	}
	if err := s.publish(ctx, uid, h); err != nil {
		return nil, err
	}
	return s.admitted(h), nil
}

func (s *Service) forget(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, uid)
}

// ensurePod makes a pod's cgroup.
func (s *Service) ensurePod(h *held, now *settings) error {
	if len(h.Cgroup) == 0 {
		return nil
	}
	values := podValues(now, h.pod)
	if h.Room != nil { // containers may have what was allocated before
		values.CgroupResources = resize.Room(*h.Room, values.CgroupResources)
	}
	return s.tree(h.Driver).Ensure(h.Cgroup, values)
}

func (s *Service) admitted(h *held) *resourcev1.AdmitResponse {
	revision, _, _ := s.pods.State()
	return &resourcev1.AdmitResponse{
		Decision: resourcev1.Decision_DECISION_ADMITTED, CgroupParent: h.parent(), Revision: revision.Proto(),
	}
}

// Release implements ResourceService. The intent is on disk when it returns.
func (s *Service) Release(ctx context.Context, req *resourcev1.ReleaseRequest) (*resourcev1.ReleaseResponse, error) {
	uid := req.GetUid()
	if uid == "" {
		return nil, rpc.Invalid.Errorf("uid: required")
	}
	s.turns.LockKey(uid)
	defer s.turns.UnlockKey(uid) //nolint:errcheck // it is locked
	s.mu.Lock()
	h := s.held[uid]
	s.mu.Unlock()
	if h != nil {
		if !h.Releasing { // only the pod's turn writes it
			releasing := h.allocation
			releasing.Releasing = true
			if err := s.table.Put(uid, releasing); err != nil {
				return nil, err
			}
			s.mu.Lock()
			h.allocation = releasing
			s.mu.Unlock()
		}
		s.release(ctx, uid, h)
	}
	revision, _, _ := s.pods.State()
	return &resourcev1.ReleaseResponse{Revision: revision.Proto()}, nil
}

// release removes a pod's cgroup and then its item; what fails is tried again
// by the loop. Callers hold the pod's turn.
func (s *Service) release(ctx context.Context, uid string, h *held) {
	err := fault.Hit(ctx, "resource.release")
	if err == nil && len(h.Cgroup) > 0 {
		err = s.tree(h.Driver).Remove(h.Cgroup)
	}
	if err == nil {
		err = s.table.Delete(uid)
	}
	if err == nil {
		s.forget(uid)
		s.pods.Delete(ctx, uid)
		s.free(podTerminated)
		s.mu.Lock()
		now := s.settings
		s.mu.Unlock()
		if now != nil && h.burstableMilli > 0 {
			if err := s.ensureBurstable(now); err != nil {
				s.kit.Log.Error("burstable cgroup", "error", err.Error())
			}
		}
		return
	}
	s.mu.Lock()
	h.err = err.Error()
	s.mu.Unlock()
	if err := s.publish(ctx, uid, h); err != nil {
		s.kit.Log.Error("publish", "uid", uid, "error", err.Error())
	}
	s.kit.Log.Warn("not released yet", "uid", uid, "error", err.Error())
	time.AfterFunc(releaseRetry, s.look)
}

// releaseRetry is how soon a release that failed is tried again.
const releaseRetry = time.Second

// releaseAll carries releases on that did not come to their end.
func (s *Service) releaseAll(ctx context.Context) {
	for _, uid := range s.uids() {
		s.turns.LockKey(uid)
		s.mu.Lock()
		h := s.held[uid]
		s.mu.Unlock()
		if h != nil && h.Releasing {
			s.release(ctx, uid, h)
		}
		_ = s.turns.UnlockKey(uid) // it is locked
	}
}
