// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// plegStandIn reads the runtime: one reading of a pod at a time, and each pod by
// itself.
type plegStandIn struct {
	n *node
	// reading is held by every reading, and taken whole by what must not meet one.
	reading sync.RWMutex
	away    bool // guarded by reading

	mu     sync.Mutex
	pods   map[string]*sync.Mutex
	denied int // requests that were not answered
}

// Refresh implements observer.
func (p *plegStandIn) Refresh(ctx context.Context, req *plegv1.RefreshRequest, _ ...grpc.CallOption) (*plegv1.RefreshResponse, error) {
	record, revision, err := p.observe(ctx, req.GetUid(), req.GetInventory())
	if err != nil {
		p.mu.Lock()
		p.denied++
		p.mu.Unlock()
		return nil, rpc.Unavailable.Errorf("read: %w", err)
	}
	return &plegv1.RefreshResponse{Revision: revision.Proto(), Record: record}, nil
}

// refused is how many requests were not answered so far.
func (p *plegStandIn) refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.denied
}

// leave has pleg answer nobody, or all again.
func (p *plegStandIn) leave(is bool) {
	p.reading.Lock()
	p.away = is
	p.reading.Unlock()
	p.n.wire.tell()
}

// reading is a reading of one pod that has ended.
type reading struct {
	uid, state string
	err        error
}

// follow reads each pod whose state in the runtime has changed since it was read
// last, as container events let the real one do, and one that could not be read again
// after a second.
func (p *plegStandIn) follow(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	ended := make(chan reading)
	read, busy, retry := map[string]string{}, map[string]bool{}, map[string]time.Time{}
	for {
		changed := p.n.rt.Changed()
		for uid, state := range p.states() {
			if last, known := read[uid]; busy[uid] || known && last == state || p.n.clock.Now().Before(retry[uid]) {
				continue
			}
			busy[uid] = true
			running.Go(func() {
				_, _, err := p.observe(ctx, uid, nil)
				select {
				case ended <- reading{uid, state, err}:
				case <-ctx.Done():
				}
			})
		}
		var again <-chan time.Time
		if len(retry) > 0 {
			again = p.n.clock.After(time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		case r := <-ended:
			delete(busy, r.uid)
			delete(retry, r.uid)
			if r.err == nil {
				read[r.uid] = r.state
			} else {
				retry[r.uid] = p.n.clock.Now().Add(time.Second)
			}
		}
	}
}

// states is what the runtime has of each pod, in words; nothing of those that have
// only a record.
func (p *plegStandIn) states() map[string]string {
	states := map[string]string{}
	p.n.mu.Lock()
	deaf := p.n.deaf
	p.n.mu.Unlock()
	if deaf {
		return nil
	}
	for _, uid := range p.n.records.Keys() {
		states[uid] = ""
	}
	for _, s := range p.n.rt.Sandboxes() {
		states[s.GetLabels()[pod.PodUIDLabel]] += fmt.Sprintf("%s %s %s;", s.GetId(), s.GetState(), s.GetNetwork().GetIp())
	}
	for _, c := range p.n.rt.Containers() {
		states[c.GetLabels()[pod.PodUIDLabel]] += fmt.Sprintf("%s %s %d;", c.GetId(), c.GetState(), c.GetFinishedAt())
	}
	return states
}

// observe reads one pod from the runtime and publishes the record.
func (p *plegStandIn) observe(ctx context.Context, uid string, all *plegv1.Inventory) (*plegv1.PodRecord, feed.Revision, error) {
	defer p.n.calls.begin()()
	p.mu.Lock()
	one, ok := p.pods[uid]
	if !ok {
		one = &sync.Mutex{}
		p.pods[uid] = one
	}
	p.mu.Unlock()
	one.Lock()
	defer one.Unlock()
	p.reading.RLock()
	defer p.reading.RUnlock()
	if p.away {
		return nil, feed.Revision{}, rpc.Unavailable.Errorf("pleg is away")
	}
	return p.n.read(ctx, uid, all)
}

// read reads one pod from the runtime and publishes the record. As the real pleg, it looks
// for nothing that is neither in the last record nor in an inventory, if there is one.
func (n *node) read(ctx context.Context, uid string, all *plegv1.Inventory) (*plegv1.PodRecord, feed.Revision, error) {
	labels := map[string]string{pod.PodUIDLabel: uid}
	sandboxes, err := n.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return nil, feed.Revision{}, err
	}
	containers, err := n.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		return nil, feed.Revision{}, err
	}
	if all != nil {
		known, err := n.known(uid, all)
		if err != nil {
			return nil, feed.Revision{}, err
		}
		sandboxes.Items = slices.DeleteFunc(sandboxes.Items, func(s *runtimeapi.PodSandbox) bool { return !known[s.GetId()] })
		containers.Containers = slices.DeleteFunc(containers.Containers, func(c *runtimeapi.Container) bool { return !known[c.GetId()] })
	}
	if len(sandboxes.GetItems())+len(containers.GetContainers()) == 0 {
		return nil, n.records.Delete(ctx, uid), nil
	}
	record := &plegv1.PodRecord{Uid: uid, SandboxOf: map[string]string{}}
	var sandboxStatuses []*runtimeapi.PodSandboxStatus
	var containerStatuses []*runtimeapi.ContainerStatus
	for _, s := range sandboxes.GetItems() {
		record.Name, record.Namespace = s.GetMetadata().GetName(), s.GetMetadata().GetNamespace()
		resp, err := n.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		if status.Code(err) == codes.NotFound {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, feed.Revision{}, err
		}
		sandboxStatuses = append(sandboxStatuses, resp.GetStatus())
	}
	for _, c := range containers.GetContainers() {
		resp, err := n.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return nil, feed.Revision{}, err
		}
		containerStatuses = append(containerStatuses, resp.GetStatus())
		record.SandboxOf[c.GetId()] = c.GetPodSandboxId()
	}
	slices.SortFunc(sandboxStatuses, pod.NewerSandbox)
	slices.SortFunc(containerStatuses, pod.NewerContainer)
	for _, s := range sandboxStatuses {
		raw, err := proto.Marshal(s)
		if err != nil {
			return nil, feed.Revision{}, err
		}
		record.Sandboxes = append(record.Sandboxes, raw)
	}
	for _, c := range containerStatuses {
		raw, err := proto.Marshal(c)
		if err != nil {
			return nil, feed.Revision{}, err
		}
		record.Containers = append(record.Containers, raw)
	}
	revision, err := n.records.Set(ctx, uid, record)
	return record, revision, err
}

// known are the IDs of the last record and of an inventory.
func (n *node) known(uid string, all *plegv1.Inventory) (map[string]bool, error) {
	ids := map[string]bool{}
	last, _ := n.records.Get(uid)
	for id := range last.GetSandboxOf() {
		ids[id] = true
	}
	for _, raw := range last.GetSandboxes() {
		s := &runtimeapi.PodSandboxStatus{}
		if err := proto.Unmarshal(raw, s); err != nil {
			return nil, err
		}
		ids[s.GetId()] = true
	}
	for _, id := range all.GetSandboxes() {
		ids[id] = true
	}
	for id := range all.GetContainers() {
		ids[id] = true
	}
	for _, id := range all.GetRemoved() {
		delete(ids, id)
	}
	return ids, nil
}
