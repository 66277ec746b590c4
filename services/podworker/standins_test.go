// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// volumeStandIn mounts everything at once.
type volumeStandIn struct{ n *node }

func (v volumeStandIn) Declare(ctx context.Context, req *volumev1.DeclareRequest, _ ...grpc.CallOption) (*volumev1.DeclareResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, err
	}
	v.n.mu.Lock()
	v.n.declared = p
	v.n.mu.Unlock()
	revision, err := v.n.volumes.Set(ctx, string(p.UID), &volumev1.PodVolumes{Uid: string(p.UID), Ready: true})
	return &volumev1.DeclareResponse{Revision: revision.Proto()}, err
}

func (v volumeStandIn) Withdraw(ctx context.Context, req *volumev1.WithdrawRequest, _ ...grpc.CallOption) (*volumev1.WithdrawResponse, error) {
	return &volumev1.WithdrawResponse{Revision: v.n.volumes.Delete(ctx, req.GetUid()).Proto()}, nil
}

// resourceStandIn admits what answer says.
type resourceStandIn struct{ n *node }

func (r resourceStandIn) Admit(ctx context.Context, req *resourcev1.AdmitRequest, _ ...grpc.CallOption) (*resourcev1.AdmitResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, err
	}
	r.n.mu.Lock()
	answer := r.n.answer
	r.n.admitted = append(r.n.admitted, fmt.Sprintf("%s running=%t", p.Name, req.GetRunning()))
	r.n.inactive = req.GetInactive()
	r.n.mu.Unlock()
	resp := answer(p, req.GetRunning())
	if resp.GetDecision() == resourcev1.Decision_DECISION_ADMITTED {
		item, ok := r.n.allocations.Get(string(p.UID))
		if !ok {
			sizes, err := pod.Sizes(p).Marshal()
			if err != nil {
				return nil, err
			}
			item = &resourcev1.PodAllocation{Uid: string(p.UID), Sizes: sizes, Asked: pod.SizesID(p), Containers: r.n.given, SharedCpus: r.n.shared}
		}
		revision, err := r.n.allocations.Set(ctx, string(p.UID), proto.CloneOf(item))
		if err != nil {
			return nil, err
		}
		resp.Revision = revision.Proto()
	}
	return resp, nil
}

// memoryLimit of a pod's cgroup; 0 for none.
func memoryLimit(p *v1.Pod) int64 {
	return ptr.Deref(pod.PodCgroupResources(p, true, pod.DefaultQuotaPeriod).Memory, 0)
}

// Resize allocates what is asked for, unless the node has no room.
func (r resourceStandIn) Resize(ctx context.Context, req *resourcev1.ResizeRequest, _ ...grpc.CallOption) (*resourcev1.ResizeResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, err
	}
	item, ok := r.n.allocations.Get(string(p.UID))
	if !ok {
		return nil, rpc.NotFound.Errorf("pod %s was not admitted", p.UID)
	}
	item = proto.CloneOf(item)
	r.n.mu.Lock()
	full := r.n.full
	r.n.mu.Unlock()
	item.Asked, item.Pending = pod.SizesID(p), nil
	if full {
		item.Pending = &resourcev1.PendingResize{Reason: "Deferred", Message: "no room", Generation: p.Generation}
	} else {
		sizes, err := pod.Sizes(p).Marshal()
		if err != nil {
			return nil, err
		}
		former := &v1.PodSpec{}
		if err := former.Unmarshal(item.GetSizes()); err != nil {
			return nil, err
		}
		has, asked := memoryLimit(pod.WithSizes(p, former)), memoryLimit(p)
		if item.MemoryLimit = max(has, asked); has == 0 || asked == 0 {
			item.MemoryLimit = 0
		}
		item.Sizes, item.Generation = sizes, p.Generation
		item.Allocation++
	}
	revision, err := r.n.allocations.Set(ctx, string(p.UID), item)
	return &resourcev1.ResizeResponse{Revision: revision.Proto()}, err
}

func (r resourceStandIn) Settle(ctx context.Context, req *resourcev1.SettleRequest, _ ...grpc.CallOption) (*resourcev1.SettleResponse, error) {
	item, ok := r.n.allocations.Get(req.GetUid())
	if !ok || item.GetAllocation() != req.GetAllocation() {
		revision, _, _ := r.n.allocations.State()
		return &resourcev1.SettleResponse{Revision: revision.Proto()}, nil
	}
	item = proto.CloneOf(item)
	item.Settled, item.MemoryLimit = req.GetAllocation(), 0
	revision, err := r.n.allocations.Set(ctx, req.GetUid(), item)
	return &resourcev1.SettleResponse{Revision: revision.Proto()}, err
}

// Release empties the pod's cgroup of what the runtime has let go, unless it is busy.
func (r resourceStandIn) Release(ctx context.Context, req *resourcev1.ReleaseRequest, _ ...grpc.CallOption) (*resourcev1.ReleaseResponse, error) {
	r.n.mu.Lock() // to the end: once a test has ended the business, nothing more becomes busy
	defer r.n.mu.Unlock()
	r.n.releasing = append(r.n.releasing, req.GetUid())
	if item, ok := r.n.allocations.Get(req.GetUid()); ok && r.n.busy {
		item = proto.CloneOf(item)
		item.Releasing, item.Error = true, "cgroup still holds 1 processes"
		revision, err := r.n.allocations.Set(ctx, req.GetUid(), item)
		return &resourcev1.ReleaseResponse{Revision: revision.Proto()}, err
	}
	return &resourcev1.ReleaseResponse{Revision: r.n.allocations.Delete(ctx, req.GetUid()).Proto()}, nil
}
