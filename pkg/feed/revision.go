// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"

	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// Revision is a state of a feed. The zero value is "nothing yet".
type Revision struct {
	Epoch string
	N     uint64
}

// RevisionFrom reads the wire form; nil is the zero value.
func RevisionFrom(r *feedv1.Revision) Revision {
	return Revision{Epoch: r.GetEpoch(), N: r.GetN()}
}

// Proto is the wire form.
func (r Revision) Proto() *feedv1.Revision {
	return &feedv1.Revision{Epoch: r.Epoch, N: r.N}
}

func (r Revision) String() string { return fmt.Sprintf("%s/%d", r.Epoch, r.N) }

// Reached reports whether a reader at r has seen want. A reader in another epoch
// has not: it must wait for the owner it asked.
func (r Revision) Reached(want Revision) bool {
	return r.Epoch == want.Epoch && r.N >= want.N
}
