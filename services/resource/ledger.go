// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/keyed"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/store"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
)

// schema of the checkpoint.
const schema = 1

// ledger is what pods hold: in memory, in the checkpoint, and in the feed.
type ledger struct {
	log   *slog.Logger
	file  *store.Store
	table *store.Table[allocation]
	pools *store.Table[string]
	pods  *feed.Owner[*resourcev1.PodAllocation]
	turns *keyed.Limit // one command at a time for a pod
	// awaited are pods that may run and hold nothing here yet: what a kubelet's files have of
	// them is given to no other.
	awaited *awaited
	// devices say how the devices of pods are.
	devices *devices.Manager
	// resized: the resources that pods are allocated, or which pods are, have changed.
	resized signal.Signal

	// mu guards held and what is in it. What is judged by all pods together is judged and
	// noted under it.
	mu   sync.Mutex
	held map[string]*held // by UID
	// debts of room to pods that hold nothing yet.
	debts debts
	// shared are the CPUs of containers that have none of their own; shown is what all items
	// have of them.
	shared, shown string
}

// openLedger reads the checkpoint. What is lost with a damaged file podworker asks for
// again.
func openLedger(kit *service.Kit, plugins *devices.Manager, now time.Time) (*ledger, error) {
	l := &ledger{log: kit.Log, devices: plugins, pods: service.Owner(kit, house.ResourcePods), turns: keyed.NewLimit(1), held: map[string]*held{}, resized: signal.New()}
	file := kit.StoreConfig("state.db")
	file.Schema = schema
	var err error
	if l.file, _, err = store.Open(file); err != nil {
		return nil, err
	}
	l.table = store.NewTable(l.file, "allocations", store.JSON[allocation]())
	all, err := l.table.All()
	if err != nil {
		return nil, err
	}
	for uid, a := range all {
		h, err := kept(a, now)
		if err != nil {
			l.log.Error("not read from the checkpoint", "uid", uid, "error", err.Error())
		}
		if h != nil {
			l.held[uid] = h
		}
	}
	l.pools = store.NewTable(l.file, "pools", store.JSON[string]())
	pools, err := l.pools.All()
	if err != nil {
		return nil, err
	}
	l.shared, l.shown = pools[sharedPool], pools[sharedPool]
	ctx := context.Background()
	for uid, h := range l.held {
		if err := l.publish(ctx, h); err != nil {
			return nil, fmt.Errorf("publish %s: %w", uid, err)
		}
	}
	l.pods.SetComplete(ctx, true)
	return l, nil
}

// turn waits for a pod's turn, and returns what ends it.
func (l *ledger) turn(uid string) (end func()) { return l.turns.Lock(uid) }

// get is what a pod holds, or nil.
func (l *ledger) get(uid string) *held {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[uid]
}

// uids of all pods that hold something.
func (l *ledger) uids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.held))
}

// each calls do in the turn of each pod that holds something.
func (l *ledger) each(do func(h *held)) {
	for _, uid := range l.uids() {
		end := l.turn(uid)
		if h := l.get(uid); h != nil {
			do(h)
		}
		end()
	}
}

// unchecked reports whether boots is to check any pod.
func (l *ledger) unchecked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		if h.unchecked != "" {
			return true
		}
	}
	return false
}

// set changes what is in memory only.
func (l *ledger) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// put writes a pod's allocation, to the checkpoint first; callers have the pod's turn.
func (l *ledger) put(h *held, next allocation) error {
	if err := l.table.Put(h.uid(), next); err != nil {
		return err
	}
	if !h.stored || next.Allocation != h.Allocation || next.Settled != h.Settled || next.Releasing != h.Releasing {
		l.resized.Send()
	}
	l.set(func() { h.allocation, h.stored = next, true })
	return nil
}

// killed notes that the kernel has killed a process of a container for want of memory, for a
// pod that holds something.
func (l *ledger) killed(ctx context.Context, uid, container string) error {
	defer l.turn(uid)()
	h := l.get(uid)
	if h == nil || slices.Contains(h.OOMKilled, container) {
		return nil
	}
	next := h.allocation
	next.OOMKilled = append(slices.Clone(h.OOMKilled), container)
	next.OOMKilled = next.OOMKilled[max(len(next.OOMKilled)-mostOOMKilled, 0):]
	if err := l.put(h, next); err != nil {
		return err
	}
	return l.publish(ctx, h)
}

// allocated are the pods that are not being released, with the resources they are allocated,
// and whether their containers have them.
func (l *ledger) allocated() map[*v1.Pod]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[*v1.Pod]bool, len(l.held))
	for _, h := range l.held {
		if h.stored && !h.Releasing {
			all[h.pod] = h.Allocation == h.Settled
		}
	}
	return all
}

// forget takes a pod out of memory.
func (l *ledger) forget(uid string) { l.set(func() { delete(l.held, uid) }) }

// remove takes a pod out of the checkpoint, memory and the feed.
func (l *ledger) remove(ctx context.Context, uid string) error {
	if err := l.table.Delete(uid); err != nil {
		return err
	}
	l.forget(uid)
	l.resized.Send()
	l.pods.Delete(ctx, uid)
	return nil
}

// publish writes a pod's item; callers have the pod's turn or are alone.
func (l *ledger) publish(ctx context.Context, h *held) error {
	item, err := h.item()
	if err != nil {
		return err
	}
	item.DeviceHealth = devices.Health(item.GetContainers(), l.devices.Inventory())
	l.set(func() { item.SharedCpus, item.DeviceHealth = l.shared, append(item.DeviceHealth, h.health...) })
	_, err = l.pods.Set(ctx, h.uid(), item)
	return err
}

// sharedPool is the key of the CPUs of containers that have none of their own.
const sharedPool = "cpus"

// share computes the CPUs of containers that have none of their own, and writes them to
// the checkpoint: a container that starts while they are computed again after a restart
// must not get CPUs of another's.
func (l *ledger) share(now *settings) (changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	shared := now.pins.Shared(l.chosen(""), l.awaited.pods(now))
	if shared == l.shared {
		return false, nil
	}
	if err := l.pools.Put(sharedPool, shared); err != nil {
		return false, err
	}
	l.shared = shared
	return true, nil
}

// showShared publishes all items when the CPUs in them are not the shared ones any more.
func (l *ledger) showShared(ctx context.Context, now *settings) error {
	if _, err := l.share(now); err != nil {
		return fmt.Errorf("shared CPUs: %w", err)
	}
	l.mu.Lock()
	shared, same := l.shared, l.shared == l.shown
	l.mu.Unlock()
	if same {
		return nil
	}
	l.each(func(h *held) { l.show(ctx, h) })
	l.set(func() { l.shown = shared })
	return nil
}

// show publishes where an error can only be logged.
func (l *ledger) show(ctx context.Context, h *held) {
	if err := l.publish(ctx, h); err != nil {
		l.log.Error("publish", "uid", h.uid(), "error", err.Error())
	}
}

func (l *ledger) revision() feed.Revision {
	revision, _, _ := l.pods.State()
	return revision
}

// over reports whether nothing of the pod will run any more. What it holds is being given
// back, and does not count for other pods (a kubelet's filterOutInactivePods).
func (h *held) over() bool { return h.Releasing || h.inactive }

// retire notes which pods are over, but for one; callers do not hold mu.
func (l *ledger) retire(inactive []string, but string) {
	l.set(func() {
		for _, uid := range inactive {
			if h := l.held[uid]; h != nil && uid != but {
				h.inactive = true
			}
		}
		if h := l.held[but]; h != nil {
			h.inactive = false
		}
	})
}

// others are the pods that count beside one; callers hold mu.
func (l *ledger) others(uid string) []*v1.Pod {
	var all []*v1.Pod
	for other, h := range l.held {
		if other != uid && !h.over() {
			all = append(all, h.pod)
		}
	}
	return all
}

// staying are those of the others, by UID, that are not on their way out, and leaving the
// names of those that are; callers hold mu.
func (l *ledger) staying(uid string) (staying []*v1.Pod, leaving []string) {
	for other, h := range l.held {
		switch {
		case other == uid, h.over():
		case h.Evicting != nil:
			leaving = append(leaving, h.pod.Namespace+"/"+h.pod.Name)
		default:
			staying = append(staying, h.pod)
		}
	}
	slices.SortFunc(staying, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	slices.Sort(leaving)
	return staying, leaving
}

// giving are the pods that are over and have been chosen something for, by UID; callers hold
// mu.
func (l *ledger) giving() map[types.UID]*v1.Pod {
	giving := map[types.UID]*v1.Pod{}
	for _, h := range l.held {
		if h.over() && len(h.chosen.GetContainers()) > 0 {
			giving[h.pod.UID] = h.pod
		}
	}
	return giving
}

// chosen is what was chosen for the pods beside one, by UID; callers hold mu.
func (l *ledger) chosen(uid string) []allocate.Held {
	var all []allocate.Held
	for other, h := range l.held {
		if other != uid {
			all = append(all, allocate.Held{Pod: h.pod, Chosen: h.chosen})
		}
	}
	slices.SortFunc(all, func(a, b allocate.Held) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	return all
}
