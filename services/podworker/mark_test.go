package podworker

import (
	"testing"

	"github.com/sextant-node/sextant/pkg/feed"
)

func TestMark(t *testing.T) {
	at := func(epoch string, n uint64) feed.Revision { return feed.Revision{Epoch: epoch, N: n} }
	for _, tt := range []struct {
		name     string
		mark     mark
		now      feed.Revision
		complete bool
		want     bool
	}{
		{"nothing was asked", mark{}, at("", 0), false, true},
		{"behind", newMark(at("a", 5), at("a", 3)), at("a", 4), true, false},
		{"reached", newMark(at("a", 5), at("a", 3)), at("a", 5), false, true},
		{"still in the former life", newMark(at("b", 1), at("a", 9)), at("a", 9), true, false},
		{"in the life that answered", newMark(at("b", 1), at("a", 9)), at("b", 1), false, true},
		{"a later life, not whole yet", newMark(at("b", 1), at("b", 0)), at("c", 1), false, false},
		{"a later life", newMark(at("b", 1), at("b", 0)), at("c", 1), true, true},
		{"a mirror that had seen nothing", newMark(at("b", 1), at("", 0)), at("", 0), false, false},
	} {
		if got := tt.mark.reached(tt.now, tt.complete); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
