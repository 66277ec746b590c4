package resource

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/rpc"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
	"github.com/sextant-node/sextant/services/resource/internal/pressure"
)

// Admit implements ResourceService.
func (s *Service) Admit(ctx context.Context, req *resourcev1.AdmitRequest) (*resourcev1.AdmitResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, rpc.Invalid.Errorf("pod: %w", err)
	}
	if p.UID == "" {
		return nil, rpc.Invalid.Errorf("pod.metadata.uid: required")
	}
	if err := fault.Hit(ctx, "resource.admit"); err != nil {
		return nil, rpc.Unavailable.Errorf("%w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := string(p.UID)
	if h := s.held[uid]; h != nil {
		if h.Releasing {
			return nil, rpc.Conflict.Errorf("pod %s: what it holds is being released", uid)
		}
		return s.admitted(h), nil
	}
	now := s.settings
	if now == nil {
		return notYet("the node's resources are not known yet"), nil
	}
	if !req.GetRunning() {
		if refusal := s.judge(p, now); refusal != nil {
			return refusal, nil
		}
	}
	return s.allocate(ctx, p, now)
}

func notYet(message string) *resourcev1.AdmitResponse {
	return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_NOT_YET, Message: message}
}

// judge returns the answer to a pod that is not admitted now, or nil.
func (s *Service) judge(p *v1.Pod, now *settings) *resourcev1.AdmitResponse {
	node := admit.Node{
		Name: now.conf.Node.Name, Allocatable: now.allocatable, Sysctls: now.sysctls,
		Labels: map[string]string{
			v1.LabelHostname: now.conf.Node.Name, v1.LabelOSStable: s.facts.OperatingSystem, v1.LabelArchStable: s.facts.Architecture,
		},
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
		return notYet("the Node object is not known yet")
	}
	var others []*v1.Pod
	for _, h := range s.held {
		others = append(others, h.pod)
	}
	if r := admit.Judge(p, others, node); r != nil {
		s.metrics.rejections.WithLabelValues(r.Reason).Inc()
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: r.Reason, Message: r.Message}
	}
	return nil
}

// allocate writes the checkpoint, then makes the cgroup; callers hold mu.
func (s *Service) allocate(ctx context.Context, p *v1.Pod, now *settings) (*resourcev1.AdmitResponse, error) {
	data, err := p.Marshal()
	if err != nil {
		return nil, err
	}
	h := &held{allocation: allocation{Pod: data, Cgroup: now.cgroupOf(p), Driver: now.driver}, pod: p}
	uid := string(p.UID)
	if err := s.table.Put(uid, h.allocation); err != nil {
		return nil, err
	}
	s.held[uid] = h
	if h.Cgroup != nil {
		began := time.Now()
		err := s.tree(now.driver).Ensure(h.Cgroup, podValues(now, p))
		s.metrics.cgroupDuration.WithLabelValues("create").Observe(time.Since(began).Seconds())
		if err != nil {
			delete(s.held, uid)
			if forget := s.table.Delete(uid); forget != nil {
				s.kit.Log.Error("checkpoint", "uid", uid, "error", forget.Error())
			}
			return notYet(err.Error()), nil
		}
		if err := s.ensureBurstable(now, s.held); err != nil {
			s.kit.Log.Error("burstable cgroup", "error", err.Error())
		}
	}
	if err := s.publish(ctx, uid, h); err != nil {
		return nil, err
	}
	return s.admitted(h), nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[uid]; h != nil {
		if !h.Releasing {
			h.Releasing = true
			if err := s.table.Put(uid, h.allocation); err != nil {
				h.Releasing = false
				return nil, err
			}
		}
		s.release(ctx, uid, h)
	}
	revision, _, _ := s.pods.State()
	return &resourcev1.ReleaseResponse{Revision: revision.Proto()}, nil
}

// release removes a pod's cgroup and then its item; what fails is tried again
// by the loop. Callers hold mu.
func (s *Service) release(ctx context.Context, uid string, h *held) {
	h.err = ""
	if h.Cgroup != nil {
		began := time.Now()
		if err := s.tree(h.Driver).Remove(h.Cgroup); err != nil {
			h.err = err.Error()
		}
		s.metrics.cgroupDuration.WithLabelValues("destroy").Observe(time.Since(began).Seconds())
	}
	if h.err == "" {
		if err := s.table.Delete(uid); err != nil {
			h.err = err.Error()
		}
	}
	if h.err == "" {
		delete(s.held, uid)
		s.pods.Delete(ctx, uid)
		return
	}
	if err := s.publish(ctx, uid, h); err != nil {
		s.kit.Log.Error("publish", "uid", uid, "error", err.Error())
	}
	s.kit.Log.Warn("not released yet", "uid", uid, "error", h.err)
	time.AfterFunc(time.Second, s.look)
}

func (s *Service) releaseAll(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, h := range s.held {
		if h.Releasing {
			s.release(ctx, uid, h)
		}
	}
}
