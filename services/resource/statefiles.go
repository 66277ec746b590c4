// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/sextant-node/sextant/pkg/file"
)

// stateFiles are the kubelet's files of the CPUs and the memory that containers have. They
// are made of the ledger, which counts: an error to write one is logged, and the loop tries
// again.
type stateFiles struct {
	dir    string
	ledger *ledger
	claims *claims

	mu      sync.Mutex        // held while files are made and written: the newest is written last
	written map[string][]byte // by name, as they are on the disk
	gone    map[string]bool   // pods that were released: what was found for them is not kept
}

func newStateFiles(dir string, ledger *ledger, claims *claims) *stateFiles {
	return &stateFiles{dir: dir, ledger: ledger, claims: claims, written: map[string][]byte{}, gone: map[string]bool{}}
}

// release notes that a pod has ended.
func (f *stateFiles) release(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone[uid] = true
}

// write replaces the files that have changed.
func (f *stateFiles) write(now *settings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledger.mu.Lock()
	held := f.ledger.chosen("")
	f.ledger.mu.Unlock()
	maps.DeleteFunc(f.gone, func(uid string, _ bool) bool { return !now.pins.WasFound(uid) })
	files, err := now.pins.Files(held, func(uid string) bool { return !f.gone[uid] && !f.claims.unexpected(uid) })
	if err != nil {
		f.ledger.log.Error("state files", "error", err.Error())
		return
	}
	for name, data := range files {
		path := filepath.Join(f.dir, name)
		if f.written[name] == nil {
			f.written[name], _ = os.ReadFile(path) // none, or not readable: it is written
		}
		if bytes.Equal(f.written[name], data) {
			continue
		}
		if err := file.Replace(path, data, 0o600); err != nil {
			f.ledger.log.Error("state file not written", "file", name, "error", err.Error())
			continue
		}
		f.written[name] = data
	}
}
