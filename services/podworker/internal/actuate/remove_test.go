// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"testing"

	"github.com/sextant-node/sextant/test/fakecri"

	"github.com/sextant-node/sextant/pkg/pod/reason"
)

// TestRunningContainersAreNotRemoved: the runtime would kill them.
func TestRunningContainersAreNotRemoved(t *testing.T) {
	n := start(t, false)
	p := web(script("sleep 60"))
	id, err := n.StartContainer(n.ctx(), n.up(p))
	if err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func() error{
		"with its logs": func() error { return n.RemoveContainer(n.ctx(), p, id) },
		"alone":         func() error { return n.RemoveContainerKeepLogs(n.ctx(), p, id) },
	} {
		if got, _ := ReasonOf(remove()); got != reason.RemoveContainerError {
			t.Errorf("%s: reason %q, want %q", name, got, reason.RemoveContainerError)
		}
	}
	if n.rt.Container("web", "web") == nil || n.rt.Count(fakecri.Match{Method: "RemoveContainer"}) != 0 {
		t.Error("a container that runs was removed")
	}
}
