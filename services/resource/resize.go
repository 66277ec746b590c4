package resource

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/resize"
)

// Resizes that wait are judged again this long after a start, and this often then
// (the kubelet: 30 s, 3 min), besides each time that something may have become free.
const (
	firstRejudge = 30 * time.Second
	rejudge      = 3 * time.Minute
)

// What made resizes be judged again, as the kubelet's metric has it.
const (
	podUpdated    = "pod_updated"
	podResized    = "pod_resized"
	podTerminated = "pod_terminated"
	periodically  = "periodic_retry"
)

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

// Resize implements ResourceService.
func (s *Service) Resize(ctx context.Context, req *resourcev1.ResizeRequest) (*resourcev1.ResizeResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, rpc.Invalid.Errorf("pod: %w", err)
	}
	uid := string(p.UID)
	if uid == "" {
		return nil, rpc.Invalid.Errorf("pod.metadata.uid: required")
	}
	if err := fault.Hit(ctx, "resource.resize"); err != nil {
		return nil, rpc.Unavailable.Errorf("%w", err)
	}
	if err := s.ask(ctx, uid, p); err != nil {
		return nil, err
	}
	s.judgeResizes(ctx, podUpdated)
	revision, _, _ := s.pods.State()
	return &resourcev1.ResizeResponse{Revision: revision.Proto()}, nil
}

// ask notes what a pod wants.
func (s *Service) ask(ctx context.Context, uid string, p *v1.Pod) error {
	s.turns.LockKey(uid)
	defer s.turns.UnlockKey(uid) //nolint:errcheck // it is locked
	h := s.heldBy(uid)
	switch {
	case h == nil || !h.stored:
		return rpc.NotFound.Errorf("pod %s was not admitted", uid)
	case h.Releasing:
		return rpc.Conflict.Errorf("pod %s: what it holds is being released", uid)
	case h.Asked == pod.SizesID(p):
		return nil
	}
	wish, err := pod.Sizes(p).Marshal()
	if err != nil {
		return err
	}
	next := h.allocation
	next.Asked, next.Wish, next.Generation = pod.SizesID(p), wish, p.Generation
	before := h.pod
	if h.wish != nil {
		before = h.wish
	}
	desired := pod.WithSizes(h.pod, pod.Sizes(p))
	if desired == h.pod { // it wants no more what it did not get
		next.Wish, next.Pending, desired = nil, nil, nil
	}
	if err := s.table.Put(uid, next); err != nil {
		return err
	}
	s.mu.Lock()
	h.allocation, h.wish = next, desired
	s.mu.Unlock()
	for _, o := range resize.Operations(before, p) {
		s.metrics.requestedResizes.WithLabelValues(o.Resource, o.Requirement, o.Operation).Inc()
	}
	return s.publish(ctx, uid, h)
}

// heldBy is what a pod holds, or nil.
func (s *Service) heldBy(uid string) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[uid]
}

// judgeResizes judges all resizes that wait, in their order. One that is granted
// may let another be, so it goes round until none is.
func (s *Service) judgeResizes(ctx context.Context, trigger string) {
	s.resizes.Lock()
	defer s.resizes.Unlock()
	for {
		granted := false
		for _, w := range s.waitingResizes() {
			ok, err := s.judgeResize(ctx, string(w.Desired.UID), trigger)
			if err != nil {
				s.kit.Log.Error("resize", "uid", string(w.Desired.UID), "error", err.Error())
			}
			granted = granted || ok
		}
		if !granted {
			break
		}
		trigger = podResized
	}
	s.mu.Lock()
	s.rejudgeAt = s.now().Add(rejudge)
	s.mu.Unlock()
}

// waitingResizes are the pods with a wish, in the order of judging.
func (s *Service) waitingResizes() []resize.Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []resize.Waiting
	for _, h := range s.held {
		if h.wish == nil || h.Releasing {
			continue
		}
		w := resize.Waiting{Desired: h.wish, Allocated: h.pod}
		if h.Pending != nil {
			w.Since = h.Pending.Since
		}
		all = append(all, w)
	}
	resize.Sort(all)
	return all
}

// judgeResize judges one pod's wish and does what comes of it. An infeasible one
// is judged again like others: the node's policies may have changed.
func (s *Service) judgeResize(ctx context.Context, uid, trigger string) (granted bool, err error) {
	s.turns.LockKey(uid)
	defer s.turns.UnlockKey(uid) //nolint:errcheck // it is locked
	s.mu.Lock()
	h, now := s.held[uid], s.settings
	if h == nil || h.wish == nil || h.Releasing || now == nil {
		s.mu.Unlock()
		return false, nil
	}
	next := h.allocation
	node, missing := s.admitNode(h.wish, now)
	if missing != nil {
		s.mu.Unlock()
		return false, nil // judged when the node is known
	}
	verdict := resize.Judge(h.wish, h.pod, s.others(uid), node, s.resizePolicies(now))
	was, sizes := h.pod, h.wish
	if verdict == nil {
		// Counted from here on; taken back below when it cannot be written.
		h.take(sizes)
	}
	s.mu.Unlock()
	if verdict != nil {
		return false, s.putOff(ctx, h, verdict)
	}
	deferred := next.Pending != nil && next.Pending.Reason == v1.PodReasonDeferred
	if next.Pod, err = sizes.Marshal(); err != nil {
		return false, err
	}
	room := podValues(now, was).CgroupResources
	if next.Room != nil {
		room = *next.Room
	}
	room = resize.Room(room, podValues(now, sizes).CgroupResources)
	next.Room, next.Allocated, next.Wish, next.Pending = &room, next.Generation, nil, nil
	next.Allocation++
	if err := s.table.Put(uid, next); err != nil {
		s.mu.Lock()
		h.take(was)
		s.mu.Unlock()
		return false, err
	}
	s.mu.Lock()
	h.allocation, h.wish = next, nil
	s.mu.Unlock()
	if deferred {
		s.metrics.acceptedResizes.WithLabelValues(trigger).Inc()
	}
	s.emitPod(ctx, h.pod, v1.EventTypeNormal, "ResizeStarted", "Pod resize started: "+pod.ResizeSummary(h.pod, next.Allocated, ""))
	s.grow(ctx, h, now)
	return true, s.publish(ctx, uid, h)
}

// take makes a pod's allocation that of p; callers hold Service.mu.
func (h *held) take(p *v1.Pod) {
	h.pod = p
	h.burstableMilli = burstableMilli(p)
}

// putOff notes why a wish is not allocated, and tells it once.
func (s *Service) putOff(ctx context.Context, h *held, verdict *resize.Pending) error {
	uid, before := string(h.pod.UID), h.Pending
	p := &pending{Reason: verdict.Reason, Message: verdict.Message, Generation: h.Generation, Since: s.now()}
	news := before == nil || before.Reason != p.Reason || before.Generation != p.Generation
	if before != nil && before.Reason == p.Reason {
		p.Since = before.Since
	}
	if before != nil && *before == *p {
		return nil
	}
	next := h.allocation
	next.Pending = p
	if err := s.table.Put(uid, next); err != nil {
		return err
	}
	s.mu.Lock()
	h.allocation = next
	wish := h.wish
	s.mu.Unlock()
	if news {
		if verdict.Detail != "" {
			s.metrics.infeasibleResizes.WithLabelValues(verdict.Detail).Inc()
		}
		s.emitPod(ctx, wish, v1.EventTypeWarning, "Resize"+p.Reason,
			"Pod resize "+p.Reason+": "+pod.ResizeSummary(wish, p.Generation, p.Message))
	}
	return s.publish(ctx, uid, h)
}

// grow gives the pod's cgroup room for what was allocated; what hinders it is in
// the item, and tried again by the loop. Callers hold the pod's turn.
func (s *Service) grow(ctx context.Context, h *held, now *settings) {
	err := fault.Hit(ctx, "resource.grow")
	if err == nil {
		err = s.ensurePod(h, now)
	}
	blocked := ""
	if err != nil {
		blocked = err.Error()
		s.kit.Log.Warn("pod cgroup not resized", "uid", string(h.pod.UID), "error", blocked)
		time.AfterFunc(releaseRetry, s.look)
	}
	s.mu.Lock()
	h.blocked = blocked
	s.mu.Unlock()
	if err := s.ensureBurstable(now); err != nil {
		s.kit.Log.Error("burstable cgroup", "error", err.Error())
	}
}

// Settle implements ResourceService.
func (s *Service) Settle(ctx context.Context, req *resourcev1.SettleRequest) (*resourcev1.SettleResponse, error) {
	uid := req.GetUid()
	if uid == "" {
		return nil, rpc.Invalid.Errorf("uid: required")
	}
	s.turns.LockKey(uid)
	defer s.turns.UnlockKey(uid) //nolint:errcheck // it is locked
	s.mu.Lock()
	h, now := s.held[uid], s.settings
	s.mu.Unlock()
	switch {
	case h == nil || h.Releasing || h.Allocation != req.GetAllocation() || h.Settled >= h.Allocation:
	case now == nil:
		return nil, rpc.Unavailable.Errorf("the node's resources are not known yet")
	default:
		if err := s.settleResize(ctx, h, now); err != nil {
			return nil, err
		}
	}
	revision, _, _ := s.pods.State()
	return &resourcev1.SettleResponse{Revision: revision.Proto()}, nil
}

// settleResize shrinks the pod's cgroup to what is allocated, then notes that it
// is done: a kill between the two has it done again.
func (s *Service) settleResize(ctx context.Context, h *held, now *settings) error {
	if err := fault.Hit(ctx, "resource.settle"); err != nil {
		return rpc.Unavailable.Errorf("%w", err)
	}
	if len(h.Cgroup) > 0 {
		if err := s.tree(h.Driver).Ensure(h.Cgroup, podValues(now, h.pod)); err != nil {
			return rpc.Unavailable.Errorf("%w", err)
		}
	}
	next := h.allocation
	next.Settled, next.Room = next.Allocation, nil
	uid := string(h.pod.UID)
	if err := s.table.Put(uid, next); err != nil {
		return err
	}
	s.mu.Lock()
	h.allocation, h.blocked = next, ""
	s.mu.Unlock()
	return s.publish(ctx, uid, h)
}

// resizeAgain judges what waits when its time has come or something became free,
// and lets cgroups grow that could not.
func (s *Service) resizeAgain(ctx context.Context) {
	s.mu.Lock()
	now, trigger := s.settings, s.freed
	s.freed = ""
	if trigger == "" && !s.now().Before(s.rejudgeAt) {
		trigger = periodically
	}
	var blocked []string
	for uid, h := range s.held {
		if h.wish != nil && h.Pending == nil && trigger == "" {
			trigger = podUpdated // asked in an earlier life, and not judged
		}
		if h.blocked != "" && !h.Releasing {
			blocked = append(blocked, uid)
		}
	}
	if now == nil {
		s.freed = trigger
	}
	s.mu.Unlock()
	if now == nil {
		return
	}
	for _, uid := range blocked {
		s.turns.LockKey(uid)
		if h := s.heldBy(uid); h != nil && h.blocked != "" && !h.Releasing {
			s.grow(ctx, h, now)
			if err := s.publish(ctx, uid, h); err != nil {
				s.kit.Log.Error("publish", "uid", uid, "error", err.Error())
			}
		}
		_ = s.turns.UnlockKey(uid) // it is locked
	}
	if trigger != "" {
		s.judgeResizes(ctx, trigger)
	}
}

// free has the loop judge again what waits.
func (s *Service) free(trigger string) {
	s.mu.Lock()
	s.freed = trigger
	s.mu.Unlock()
	s.look()
}

// resizePolicies are the node's.
func (s *Service) resizePolicies(now *settings) resize.Policies {
	k := &now.conf.Kubelet
	return resize.Policies{
		StaticCPU:    k.CPUManagerPolicy == "static" && !now.conf.Gate("InPlacePodVerticalScalingExclusiveCPUs"),
		StaticMemory: k.MemoryManagerPolicy == "Static" && !now.conf.Gate("InPlacePodVerticalScalingExclusiveMemory"),
		PodLevel:     now.conf.Gate("InPlacePodLevelResourcesVerticalScaling"),
		Swap:         pod.ResourceOptions{Swap: pod.SwapMode(k.MemorySwap.SwapBehavior), SwapController: true, CgroupV2: s.facts.CgroupVersion == 2},
	}
}

// emitPod says something of a pod.
func (s *Service) emitPod(ctx context.Context, p *v1.Pod, kind, reason, message string) {
	err := s.events.Emit(ctx, &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)},
		Type:   kind, Reason: reason, Message: message, Time: timestamppb.New(s.now()),
	})
	if err != nil {
		s.kit.Log.Error("event", "reason", reason, "error", err.Error())
	}
}

// resizeItem adds what is to be said of a pod's resizes; callers have its turn.
func (h *held) resizeItem(item *resourcev1.PodAllocation) error {
	var err error
	if item.Sizes, err = pod.Sizes(h.pod).Marshal(); err != nil {
		return err
	}
	item.Asked, item.Allocation, item.Settled = h.Asked, h.Allocation, h.Settled
	item.Generation, item.Blocked = h.Allocated, h.blocked
	if h.Pending != nil {
		item.Pending = &resourcev1.PendingResize{Reason: h.Pending.Reason, Message: h.Pending.Message, Generation: h.Pending.Generation}
	}
	if h.Room != nil && h.Room.Memory != nil {
		item.MemoryLimit = max(*h.Room.Memory, 0)
	}
	return nil
}
