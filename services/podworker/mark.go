package podworker

import "github.com/sextant-node/sextant/pkg/feed"

// mark is a revision that a neighbour's command answered with, and the epoch the
// mirror of its feed was in at that time.
type mark struct {
	want feed.Revision
	was  string
}

// newMark notes a revision while the mirror is at now.
func newMark(want, now feed.Revision) mark { return mark{want: want, was: now.Epoch} }

// reached tells whether a mirror at now has seen what the command did. Where the
// epochs differ the mirror is either still in the one it was in, and behind, or
// has gone on to a later life of the owner; then it must be complete, for until
// it is it may hold items of the former life.
func (m mark) reached(now feed.Revision, complete bool) bool {
	if m.want == (feed.Revision{}) {
		return true
	}
	if now.Epoch == m.want.Epoch {
		return now.N >= m.want.N
	}
	return now.Epoch != m.was && complete
}
