// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/resource/internal/resize/state"
)

// sizeFiles are the kubelet's files of the resources that pods are allocated and of those
// that their containers have (package state). They are made of the ledger for an agent that
// comes after this one, soon after a change and when the service stops. At the start they
// are read. Where a kubelet has written them since this agent did, it has had the node, and
// they count: the ledger follows them. Of pods that the ledger does not have they count in
// any case.
type sizeFiles struct {
	root   string
	node   *node
	ledger *ledger

	mu sync.Mutex // taken before the ledger's
	// former are the pods of the files that have not been admitted here, until it is known that
	// they will not be.
	former state.Pods
	// actuated is as the file was written last: a pod whose containers are being resized stays
	// as it was.
	actuated state.Pods
}

// openSizeFiles reads the files, has the ledger follow a kubelet's, and writes them.
func openSizeFiles(root string, node *node, ledger *ledger) (*sizeFiles, error) {
	f := &sizeFiles{root: root, node: node, ledger: ledger}
	// Which files this agent has written before: a version that did not may have allocated more
	// since a kubelet wrote them.
	ours := store.NewTable(ledger.file, "sizeFiles", store.JSON[bool]())
	written, err := ours.All()
	if err != nil {
		return nil, err
	}
	others := false // have written what was allocated
	node.foundIn(state.Actuated, func(data []byte) (err error) {
		f.actuated, _, err = state.Decode(data)
		return err
	})
	node.foundIn(state.Allocated, func(data []byte) (err error) {
		f.former, others, err = state.Decode(data)
		return err
	})
	if others && written[state.Allocated] {
		if err := f.follow(); err != nil {
			return nil, err
		}
	}
	f.write()
	if written[state.Allocated] {
		return f, nil
	}
	return f, ours.Put(state.Allocated, true)
}

// follow gives the pods of the ledger what a kubelet has allocated them, and judges anew what
// they ask for beyond that: the node has other pods by now.
func (f *sizeFiles) follow() error {
	for uid, h := range f.ledger.held {
		has, ok := f.former[types.UID(uid)]
		if !ok || h.Releasing {
			continue
		}
		sized, next, wish := pod.WithSizes(h.pod, has.Sizes(h.pod)), h.allocation, h.wish
		if sized == h.pod && h.Pending == nil {
			continue
		}
		next.Pending = nil
		if sized != h.pod {
			var err error
			if next.Pod, err = sized.Marshal(); err != nil {
				return err
			}
			next.Allocation, next.Room = next.Allocation+1, nil
			if f.actuated[types.UID(uid)].Gives(sized) {
				next.Settled = next.Allocation
			}
			f.ledger.log.Info("pod was resized by the kubelet", "uid", uid, "resources", pod.ResizeSummary(sized, next.Allocated, ""))
		}
		if wish != nil {
			wish = pod.WithSizes(sized, pod.Sizes(wish))
		}
		if wish == sized {
			wish, next.Wish = nil, nil
		}
		if err := f.ledger.put(h, next); err != nil {
			return err
		}
		f.ledger.set(func() {
			h.take(sized)
			h.wish = wish
		})
		f.ledger.show(context.Background(), h)
	}
	return nil
}

// known is a pod that runs and holds nothing here with the resources that the files have of
// it, and whether its containers have them.
func (f *sizeFiles) known(p *v1.Pod) (sized *v1.Pod, given bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	has, ok := f.former[p.UID]
	if !ok {
		return p, true
	}
	sized = pod.WithSizes(p, has.Sizes(p))
	return sized, f.actuated[p.UID].Gives(sized)
}

// over notes that a pod has ended, and reports whether the files had it.
func (f *sizeFiles) over(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.former[types.UID(uid)]
	if ok {
		delete(f.former, types.UID(uid))
		f.ledger.resized.Send()
	}
	return ok
}

// awaits reports whether a pod of the files may yet be admitted here: until it is, it is not
// known what is free.
func (f *sizeFiles) awaits(now *settings) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	awaited := f.ledger.awaited.pods(now)
	for uid := range f.former {
		if f.ledger.get(string(uid)) == nil && awaited(string(uid)) {
			return true
		}
	}
	return false
}

// sizesRest is the least time between two writes: each is of all pods.
const sizesRest = 5 * time.Second

// run writes them until ctx ends, and then a last time.
func (f *sizeFiles) run(ctx context.Context) error {
	return whenChanged(ctx, f.ledger.resized, sizesRest, f.write)
}

// write makes the files of the ledger. One that is right is left alone: after most starts both
// are.
func (f *sizeFiles) write() {
	f.mu.Lock()
	defer f.mu.Unlock()
	awaited := func(string) bool { return true }
	if now, _ := f.node.now(); now != nil {
		awaited = f.ledger.awaited.pods(now)
	}
	allocated, actuated := state.Pods{}, state.Pods{}
	keep := func(uid types.UID) {
		if had, ok := f.actuated[uid]; ok {
			actuated[uid] = had
		}
	}
	for p, settled := range f.ledger.allocated() {
		delete(f.former, p.UID)
		allocated[p.UID] = state.AllocationOf(p)
		if settled {
			actuated[p.UID] = state.ActuationOf(p)
		} else {
			keep(p.UID)
		}
	}
	for uid, had := range f.former {
		if !awaited(string(uid)) {
			delete(f.former, uid)
			continue
		}
		allocated[uid] = had
		keep(uid)
	}
	f.actuated = actuated
	for name, pods := range map[string]state.Pods{state.Actuated: actuated, state.Allocated: allocated} {
		path := filepath.Join(f.root, name)
		data, err := state.Encode(pods)
		if was, _ := os.ReadFile(path); err == nil && !bytes.Equal(was, data) { // none, or not readable: it is written
			err = file.Replace(path, data, 0o600)
		}
		if err != nil {
			f.ledger.log.Error("state file not written", "file", name, "error", err.Error())
		}
	}
}
