// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sextant-node/sextant/pkg/pod"
)

// TestDeadLinksGoEachMinute: a link to a log that is gone is removed within a minute, and
// that of a container that runs is not.
func TestDeadLinksGoEachMinute(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	links := filepath.Join(n.dir, "containers")
	n.must(os.MkdirAll(links, 0o755))
	dead := pod.LegacyLogLink(links, "gone", "default", "web", "0123456789")
	live := pod.LegacyLogLink(links, "a", "default", "web", n.rt.Container("a", "web").GetId())
	if err := os.Remove(live); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, link := range []string{dead, live} {
		n.must(os.Symlink(filepath.Join(n.dir, "none"), link))
	}
	n.until("the record", func() bool { return n.loop.in.liveLinks()[filepath.Base(live)] })
	before := n.clock.Now()
	n.pass("the dead link is gone", linksPeriod/4, func() bool { _, err := os.Lstat(dead); return errors.Is(err, fs.ErrNotExist) })
	if _, err := os.Lstat(live); err != nil {
		t.Errorf("the link of a container that runs: %v", err)
	}
	if took := n.clock.Since(before); took > 2*linksPeriod {
		t.Errorf("it took %v", took)
	}
}
