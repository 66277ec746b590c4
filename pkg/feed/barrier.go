// SPDX-License-Identifier: Apache-2.0

package feed

// Barrier makes a reader read its writes: it is the revision that a command to a feed's
// owner answered with, and the epoch the reader's replica was in before the command. The
// zero value is passed by every replica.
type Barrier struct {
	want Revision
	was  string
}

// NewBarrier makes one of a command's answer, and of where the replica stood before the
// command was sent.
func NewBarrier(answer, before Revision) Barrier { return Barrier{want: answer, was: before.Epoch} }

// Passed reports whether a replica at now reflects what the command did. Where the
// epochs differ the replica is either still in the one it was in, and behind, or has gone
// on to a later process of the owner; then it must be complete, for until then it may hold
// items of the former process.
func (b Barrier) Passed(now Revision, complete bool) bool {
	if b.want == (Revision{}) {
		return true
	}
	if now.Epoch == b.want.Epoch {
		return now.N >= b.want.N
	}
	return now.Epoch != b.was && complete
}
