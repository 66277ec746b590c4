// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/wire"
	"github.com/sextant-node/sextant/test/fakecri"
)

// TestWhatContainersSayIsText: whatever bytes a container or the runtime says, podworker
// makes text of them itself, and the pod goes on.
func TestWhatContainersSayIsText(t *testing.T) {
	never := func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }
	for name, tc := range map[string]struct {
		edits []func(*v1.Pod)
		fail  string // a call that fails once, with what is no text
		want  string // in what is published
	}{
		"termination message": {[]func(*v1.Pod){never, command(`printf 'caf\351' > /dev/termination-log; exit 1`)}, "", "caf\uFFFD"},
		"end of the log": {[]func(*v1.Pod){never, func(p *v1.Pod) {
			p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
			command("echo " + strings.Repeat("日本", 900) + "; exit 1")(p)
		}}, "", "日本\n"},
		"hook": {[]func(*v1.Pod){func(p *v1.Pod) {
			hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", `printf 'caf\351' >&2; exit 1`}}}
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: hook}
		}}, "", "caf\uFFFD"},
		"error of a sandbox":   {nil, "RunPodSandbox", "moon\uFFFD"},
		"error of a container": {nil, "CreateContainer", "moon\uFFFD"},
		"error of a pull":      {[]func(*v1.Pod){func(p *v1.Pod) { p.Spec.Containers[0].ImagePullPolicy = v1.PullAlways }}, "PullImage", "moon\uFFFD"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tc.fail != "" {
				defer n.rt.Fail(fakecri.Match{Method: tc.fail}, -1, status.Error(codes.Internal, "moon\xe9")).Undo()
			}
			before := wire.Cleaned()
			n.live()
			p := web("a", tc.edits...)
			n.desire(p)
			published := func() bool {
				s := n.state(p.UID)
				said := s.GetMessage() + s.GetWait().GetMessage()
				for _, m := range s.GetMessages() {
					said += m.GetMessage()
				}
				for _, w := range s.GetWaits() {
					said += w.GetMessage() + w.GetLastError()
				}
				return strings.Contains(said, tc.want)
			}
			n.pass("published", time.Second, published)
			n.desire(n.deleted(p, 1))
			n.pass("released", time.Second, func() bool { return n.released(p.UID) })
			if got := wire.Cleaned(); got != before {
				t.Errorf("%d messages were cleaned on their way", got-before)
			}
		})
	}
}
