// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/wire"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// podDevices gives devices of plugins to pods. Which, pinner decides, with the CPUs; plugins
// are called before that (ask) and after it is in the journal (prepare).
type podDevices struct {
	manager *devices.Manager
	ledger  *ledger
	tree    *tree
	node    *node
	events  *events
	log     *slog.Logger
	changed signal.Signal // what the kubelet's file is to have is another: stale
	stale   atomic.Bool   // the kubelet's file is to be made again

	mu sync.Mutex
	// kept is what the kubelet's file has of pods that are not in the ledger, by UID: they
	// may run, and not have been taken over yet.
	kept map[string][]checkpoint.PodDevicesEntry
	// former is what was in kept of pods of which nothing runs. They are admitted again after
	// a boot, and get the same devices where these are free and healthy.
	former map[string][]checkpoint.PodDevicesEntry
	// preferences are what plugins are asked for pods that are not admitted yet, by UID.
	preferences map[string]*preferences
	// calls are the calls of Allocate under way, by UID; lost is how many have ended with the
	// plugin.
	calls map[string]*preparing
	lost  map[string]int
	// seen is the inventory that was acted on last; only the loop has it.
	seen devices.Inventory
}

func newPodDevices(manager *devices.Manager, ledger *ledger, tree *tree, node *node, events *events, changed signal.Signal) *podDevices {
	d := &podDevices{
		manager: manager, ledger: ledger, tree: tree, node: node, events: events, log: ledger.log, changed: changed, seen: manager.Inventory(),
		kept: map[string][]checkpoint.PodDevicesEntry{}, former: map[string][]checkpoint.PodDevicesEntry{}, preferences: map[string]*preferences{}, calls: map[string]*preparing{}, lost: map[string]int{},
	}
	for _, e := range manager.Kept() {
		if ledger.get(e.PodUID) == nil {
			d.kept[e.PodUID] = append(d.kept[e.PodUID], e)
		}
	}
	d.stale.Store(true)
	return d
}

// touch has the kubelet's file made again.
func (d *podDevices) touch() {
	d.stale.Store(true)
	d.changed.Send()
}

// choice is a choice for a pod beside what the others hold.
func (d *podDevices) choice(uid types.UID, held []allocate.Held, prefer devices.Preference) *devices.Choice {
	used, known := map[string]sets.Set[string]{}, sets.New(string(uid))
	for _, h := range held {
		devices.Use(used, h.Chosen.GetContainers())
		known.Insert(string(h.Pod.UID))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for other, entries := range d.kept {
		if !known.Has(other) { // the ledger's counts: the file may be older
			devices.Use(used, adopted(entries))
		}
	}
	had := map[string]sets.Set[string]{}
	devices.Use(had, adopted(slices.Concat(d.kept[string(uid)], d.former[string(uid)])))
	return &devices.Choice{Inventory: d.manager.Inventory(), Used: used, Had: had, Prefer: prefer}
}

// decided is a choice that has the answers of plugins. Callers have the pod's turn.
func (d *podDevices) decided(r allocate.Request) *devices.Choice {
	asked := d.asked(string(r.Pod.UID), false)
	return d.choice(r.Pod.UID, r.Held, func(q devices.Question) []string {
		answer, _ := asked.answer(q)
		return answer
	})
}

// adopted is what the kubelet's file says that the containers of a pod have.
func adopted(entries []checkpoint.PodDevicesEntry) []*resourcev1.ContainerAllocation {
	chosen := &resourcev1.Chosen{}
	for _, e := range entries {
		c, record := allocate.Container(chosen, e.ContainerName), devices.FromEntry(e)
		c.PluginDevices = append(c.PluginDevices, record)
		_ = devices.Answer(c, record, e.AllocResp) // what is damaged says nothing
	}
	return chosen.GetContainers()
}

// raise raises what is allocatable of resources to what pods hold of them, for a pod that
// holds devices itself: as with a kubelet, a device that is not healthy any more keeps none
// from what it has. Callers hold ledger.mu.
func (d *podDevices) raise(uid types.UID, allocatable v1.ResourceList) {
	if !d.holds(string(uid)) {
		return
	}
	for name, ids := range d.choice("", d.ledger.chosen(""), nil).Used {
		have, known := allocatable[v1.ResourceName(name)]
		if n := int64(len(ids)); known && have.Value() < n {
			allocatable[v1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
}

// holds reports whether a pod has devices, by the ledger or by the kubelet's file. Callers
// hold ledger.mu.
func (d *podDevices) holds(uid string) bool {
	if h := d.ledger.held[uid]; h != nil {
		return slices.ContainsFunc(h.chosen.GetContainers(), func(c *resourcev1.ContainerAllocation) bool { return len(c.GetPluginDevices()) > 0 })
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.kept[uid]) > 0
}

// keep notes the devices that a running pod had with a kubelet.
func (d *podDevices) keep(uid types.UID, chosen *resourcev1.Chosen) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range adopted(d.kept[string(uid)]) {
		proto.Merge(allocate.Container(chosen, c.GetName()), c)
	}
}

// preparing are the calls of Allocate for a pod.
type preparing struct {
	done, late chan struct{}
	// gone: no more are made. podDevices.mu guards it.
	gone   bool
	chosen *resourcev1.Chosen
	err    error
}

// prepare has plugins prepare what was chosen for a pod, and journals what they answer; nil
// when that is done. Callers have the pod's turn. A call that takes long goes on: the next
// admission of the pod has its result.
func (d *podDevices) prepare(ctx context.Context, h *held) (*resourcev1.AdmitResponse, error) {
	if answered(h.chosen) {
		return nil, nil //nolint:nilnil // as documented
	}
	d.mu.Lock()
	call := d.calls[h.uid()]
	if call == nil {
		call = &preparing{done: make(chan struct{}), late: make(chan struct{}), chosen: proto.CloneOf(h.chosen)}
		d.calls[h.uid()] = call
		go d.allocate(call)
	}
	d.mu.Unlock()
	select {
	case <-call.done:
	case <-call.late:
		select {
		case <-call.done:
		default:
			return d.waits(h), nil
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.forget(h.uid())
	if errors.Is(call.err, devices.ErrAway) && d.lose(h.uid()) < maxLost {
		return notYet("", "waiting for a device plugin: "+call.err.Error()), d.ledger.remove(ctx, h.uid())
	}
	d.over(h.uid())
	if call.err != nil {
		refused := topology.Refused(call.err)
		return rejected(refused.Reason, refused.Message), d.ledger.remove(ctx, h.uid())
	}
	next := h.allocation
	var err error
	if next.Chosen, err = wire.Marshal(call.chosen); err != nil {
		return nil, err
	}
	if err := fault.Hit(ctx, "resource.devices.answered"); err != nil {
		return nil, err
	}
	if err := d.ledger.put(h, next); err != nil {
		return nil, err
	}
	d.ledger.set(func() { h.chosen = call.chosen })
	d.touch()
	return nil, nil //nolint:nilnil // as documented
}

// waits is the answer to a pod while a plugin does not answer.
func (d *podDevices) waits(h *held) *resourcev1.AdmitResponse {
	if w := (&devices.Choice{Inventory: d.manager.Inventory()}).Waits(h.pod); w != nil {
		return notYet("", w.String())
	}
	return notYet("", "waiting for a device plugin to answer")
}

// forget drops the results of calls for a pod, and has no more made: others may have its
// devices from now on.
func (d *podDevices) forget(uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.preferences, uid)
	if call := d.calls[uid]; call != nil {
		call.gone = true
		delete(d.calls, uid)
	}
}

// maxLost is with how many calls of Allocate a plugin may end for a pod, which is refused
// then: a plugin may crash with each, and comes back in between.
const maxLost = 3

// lose counts a call of Allocate for a pod that has ended with the plugin.
func (d *podDevices) lose(uid string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost[uid]++
	return d.lost[uid]
}

// over forgets all that was asked of plugins for a pod, which does not come again for devices.
func (d *podDevices) over(uid string) {
	d.forget(uid)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lost, uid)
}

func answered(chosen *resourcev1.Chosen) bool {
	for _, c := range chosen.GetContainers() {
		if slices.ContainsFunc(c.GetPluginDevices(), func(one *resourcev1.PluginDevices) bool { return !one.GetAnswered() }) {
			return false
		}
	}
	return true
}

// allocate calls the plugins, one after the other, as long as the pod is not gone.
func (d *podDevices) allocate(call *preparing) {
	var over []func()
	late := sync.OnceFunc(func() { close(call.late) })
	defer func() {
		close(call.done)
		for _, f := range over {
			f()
		}
	}()
	for _, c := range call.chosen.GetContainers() {
		for _, one := range c.GetPluginDevices() {
			if one.GetAnswered() {
				continue
			}
			d.mu.Lock()
			if call.gone {
				d.mu.Unlock()
				return
			}
			asked := d.manager.Allocate(one.GetResource(), devices.RecordIDs(one))
			d.mu.Unlock()
			over = append(over, asked.Over)
			select {
			case <-asked.Done:
			case <-asked.Late:
				late()
				<-asked.Done
			}
			if call.err = asked.Err; call.err != nil {
				return
			}
			answer, err := wire.Marshal(asked.Answer)
			if err == nil {
				err = devices.Answer(c, one, answer)
			}
			if call.err = err; err != nil {
				return
			}
		}
	}
}

// released takes what the kubelet's file has of a pod that holds nothing any more.
func (d *podDevices) released(h *held) {
	d.mu.Lock()
	_, kept := d.kept[h.uid()]
	delete(d.kept, h.uid())
	delete(d.former, h.uid())
	d.mu.Unlock()
	if kept || len(devices.Entries(h.uid(), h.chosen.GetContainers())) > 0 {
		d.touch()
	}
}

// file is the content of the kubelet's file.
func (d *podDevices) file() ([]byte, error) {
	var entries []checkpoint.PodDevicesEntry
	inLedger := map[string]bool{}
	d.ledger.mu.Lock()
	for _, h := range d.ledger.chosen("") {
		inLedger[string(h.Pod.UID)] = true
		entries = append(entries, devices.Entries(string(h.Pod.UID), h.Chosen.GetContainers())...)
	}
	d.ledger.mu.Unlock()
	d.mu.Lock()
	for uid, kept := range d.kept {
		if !inLedger[uid] {
			entries = append(entries, kept...)
		}
	}
	d.mu.Unlock()
	slices.SortStableFunc(entries, func(a, b checkpoint.PodDevicesEntry) int { return strings.Compare(a.PodUID, b.PodUID) })
	return d.manager.File(entries)
}

// pass acts on what has changed of the plugins since the last, and reports whether anything
// has.
func (d *podDevices) pass(ctx context.Context, now *settings, ended func(uid string) bool, wake signal.Signal) (changed bool) {
	if next := d.manager.Expire(); !next.IsZero() {
		time.AfterFunc(max(next.Sub(d.events.now()), time.Second), wake.Send)
	}
	d.drop(now, ended)
	before, inventory := d.seen, d.manager.Inventory()
	changed = len(before) != len(inventory)
	for name, r := range inventory {
		was := before[name]
		changed = changed || was != r
		if was == nil || was.State == r.State {
			continue
		}
		switch r.State {
		case devices.Away, devices.Hung:
			d.events.node(ctx, now, v1.EventTypeWarning, "DevicePluginNotReady", "The device plugin of "+name+" is not ready: "+r.Why)
		case devices.Serving:
			d.events.node(ctx, now, v1.EventTypeNormal, "DevicePluginReady", "The device plugin of "+name+" is ready")
		case devices.Gone:
		}
	}
	if !changed {
		return false
	}
	d.seen = inventory
	d.stale.Store(true)
	d.ledger.each(func(h *held) {
		if !h.Releasing && len(devices.Health(h.chosen.GetContainers(), inventory)) > 0 && answered(h.chosen) {
			d.ledger.show(ctx, h)
		}
	})
	return true
}

// drop forgets what the kubelet's file has of pods that ended while nothing watched: they
// have no cgroup, or, where pods have none, are not wanted any more.
func (d *podDevices) drop(now *settings, ended func(uid string) bool) {
	if now.qos() {
		ended = func(uid string) bool {
			return pod.CheckUID(types.UID(uid)) != nil || d.tree.find(now, types.UID(uid)) == nil
		}
	}
	d.mu.Lock()
	uids := slices.Collect(maps.Keys(d.kept))
	d.mu.Unlock()
	for _, uid := range uids {
		held := d.ledger.get(uid) != nil
		if !held && !ended(uid) {
			continue
		}
		d.mu.Lock()
		if !held {
			d.former[uid] = d.kept[uid]
		}
		delete(d.kept, uid)
		d.mu.Unlock()
		d.touch()
	}
}

// devicePatience is how long a call to a plugin may take before pods that need it wait.
const devicePatience = 5 * time.Second
