// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// departed is a pod that was forgotten. A record that was read before may come after: what
// it shows is not a pod that nothing knows.
type departed struct {
	// barrier is the revision of pleg.pods that its worker had seen.
	barrier feed.Barrier
	// removed are the IDs of what its worker removed and no record had shown to be gone.
	removed map[string]bool
	at      time.Time
}

// records is the replica of pleg.pods.
type records interface {
	Get(key string) (*observe.Record, bool)
	State() (now feed.Revision, complete bool, items int, err error)
}

// shows reports whether the replica has anything of a pod that its worker did not see off.
// Its position is read first: it moves on in between, and a record of before the barrier
// must not count as one of after it.
func (d departed) shows(replica records, uid types.UID) bool {
	now, complete, _, _ := replica.State()
	record, there := replica.Get(string(uid))
	if !there || !d.barrier.Passed(now, complete) {
		return false
	}
	return len(d.removed) == 0 || record.Error != "" ||
		slices.ContainsFunc(record.Sandboxes, func(s step.Sandbox) bool { return !d.removed[s.ID] }) ||
		slices.ContainsFunc(record.Containers, func(o step.Instance) bool { return !d.removed[o.ID] })
}

// over reports whether no older record can come any more.
func (d departed) over(replica records, uid types.UID) bool {
	now, complete, _, _ := replica.State()
	_, there := replica.Get(string(uid))
	return !there && d.barrier.Passed(now, complete)
}
