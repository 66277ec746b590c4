// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
)

// stateFiles are the kubelet's files of the CPUs, the memory and the devices that containers
// have. They are for an agent that comes after this one: made of the ledger, which counts,
// soon after it has changed and once more when the service stops. No admission waits for
// them. Which resources plugins have registered this agent, too, knows from them after a
// restart; they are written before the node's item has a change of that. An error to write
// one is logged; it is tried again with the next change, and with each pass of the loop.
type stateFiles struct {
	root    string
	node    *node
	ledger  *ledger
	devices *podDevices
	changed signal.Signal // they may have to be others

	writing sync.Mutex        // held while files are made and written: the newest is written last
	written map[string][]byte // by path, as they are on the disk
}

func newStateFiles(root string, node *node, ledger *ledger, devices *podDevices, changed signal.Signal) *stateFiles {
	return &stateFiles{root: root, node: node, ledger: ledger, devices: devices, changed: changed, written: map[string][]byte{}}
}

// filesRest is the least time between two writes: many pods that come at once are few
// writes.
const filesRest = 100 * time.Millisecond

// run writes them until ctx ends, and then a last time.
func (f *stateFiles) run(ctx context.Context) error {
	return whenChanged(ctx, f.changed, filesRest, func() {
		if now, _ := f.node.now(); now != nil {
			f.write(now)
		}
	})
}

// whenChanged writes after each change, with a rest in between, and a last time when ctx ends.
func whenChanged(ctx context.Context, changed signal.Signal, rest time.Duration, write func()) error {
	for {
		last := false
		select {
		case <-ctx.Done():
			last = true
		case <-changed:
		}
		write()
		if last {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

// write replaces the files that have changed.
func (f *stateFiles) write(now *settings) {
	f.writing.Lock()
	defer f.writing.Unlock()
	all, err := f.pinned(now)
	if err != nil {
		f.ledger.log.Error("state files", "error", err.Error())
	}
	for name, data := range all {
		f.replace(filepath.Join(f.root, name), data)
	}
	if !f.devices.stale.Swap(false) { // a hundred pods are a millisecond of each pass
		return
	}
	data, err := f.devices.file()
	if err != nil {
		f.ledger.log.Error("devices of pods not written for a kubelet", "error", err.Error())
	}
	if err != nil || !f.replace(filepath.Join(pod.Layout{Root: f.root}.DevicePlugins(), checkpoint.Name), data) {
		f.devices.stale.Store(true)
	}
}

// pinned are the files of CPUs and memory, by name.
func (f *stateFiles) pinned(now *settings) (map[string][]byte, error) {
	f.ledger.mu.Lock()
	held := f.ledger.chosen("")
	f.ledger.mu.Unlock()
	f.ledger.awaited.forget(now)
	return now.pins.Files(held, f.ledger.awaited.pods(now))
}

// replace replaces a file whose content is another, and reports whether it is right then.
func (f *stateFiles) replace(path string, data []byte) bool {
	if f.written[path] == nil {
		f.written[path], _ = os.ReadFile(path) // none, or not readable: it is written
	}
	if bytes.Equal(f.written[path], data) {
		return true
	}
	if err := file.Replace(path, data, 0o600); err != nil {
		f.ledger.log.Error("state file not written", "file", filepath.Base(path), "error", err.Error())
		return false
	}
	f.written[path] = data
	return true
}
