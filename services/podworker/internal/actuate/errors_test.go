// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sextant-node/sextant/test/fakecri"
)

// TestCauseOf: the status has the plain text of an error, an event of a kubelet its code too.
func TestCauseOf(t *testing.T) {
	n := start(t, false)
	p := web(script("sleep 60"))
	n.up(p)
	n.rt.Fail(fakecri.Match{Method: "StopPodSandbox"}, 1, status.Error(codes.Unknown, "no network"))
	err := n.StopSandbox(n.ctx(), p, "any")
	if got := CauseOf(err); got != "rpc error: code = Unknown desc = no network" {
		t.Errorf("%q", got)
	}
	if _, got := ReasonOf(err); got != `stop sandbox any of pod "`+p.Name+"_"+p.Namespace+"("+string(p.UID)+`)": no network` {
		t.Errorf("%q", got)
	}
}
