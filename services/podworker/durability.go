// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"reflect"
	"time"

	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// durability is what the journal holds of a pod, and the write that is under way.
type durability struct {
	facts step.Facts // on the disk
	text  string     // all of the record that is on the disk, empty while that is not known
	spec  uint64     // the specification that the record on the disk has
	// beside is closed when the write beside the work has ended; nil for none.
	beside   chan struct{}
	retryAt  time.Time // when the disk is tried again after a failure
	failures int
}

// has reports whether the record on the disk is of these facts and this specification, as
// far as that shows without encoding them. Most rounds change neither.
func (j *durability) has(facts step.Facts, spec uint64) bool {
	on := j.facts
	on.Memory, facts.Memory = step.Memory{}, step.Memory{}
	return j.text != "" && j.spec == spec && reflect.DeepEqual(on, facts)
}

// await waits for the write beside the work: what it writes is older than what
// follows.
func (j *durability) await() {
	if j.beside != nil {
		<-j.beside
		j.beside = nil
	}
}
