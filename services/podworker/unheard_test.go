// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// TestStartAfterReboot: of what an earlier life accepted nothing is started before
// the API server was heard: a pod it does not have any more stays as it is. A server
// that does not answer is not waited for.
func TestStartAfterReboot(t *testing.T) {
	t.Parallel()
	api := func(n *node, s *configv1.Source) {
		s.Name = pod.SourceAPI
		if s.GetComplete() {
			revision, _, _ := n.pods.State()
			s.PodsRevision = revision.Proto()
		}
		n.set(n.sources.Set(context.Background(), s.Name, s))
		n.pods.SetComplete(context.Background(), s.GetComplete())
	}
	waits := func(n *node, name string) {
		t.Helper()
		n.until(name+" waits", func() bool {
			return strings.Contains(n.state(web(name).UID).GetWait().GetMessage(), "the API server has not said yet")
		})
	}
	n := newNode(t)
	api(n, &configv1.Source{})
	p, s := web("gone"), static("one")
	n.desire(p)
	n.desire(s)
	n.live()
	n.until("the static pod up", func() bool { return n.settled(s.UID) })
	waits(n, "gone")
	if n.sandboxesOf("gone") > 0 {
		t.Error("a sandbox before the API server was heard")
	}
	n.forget(p.UID)
	api(n, &configv1.Source{Complete: true})
	n.until("the deleted pod forgotten", func() bool { return n.state(p.UID) == nil })
	if n.rt.Container("gone", "web") != nil {
		t.Error("a deleted pod was started")
	}

	n = newNode(t)
	api(n, &configv1.Source{})
	n.desire(web("b"))
	n.live()
	waits(n, "b")
	api(n, &configv1.Source{Error: "connection refused"})
	n.until("up on the word of before", func() bool { return n.settled(web("b").UID) })
}
