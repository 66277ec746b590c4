// SPDX-License-Identifier: Apache-2.0

package prober_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/wire"
)

// TestVerdictWhateverTheBody: a body that is not UTF-8, or whose end is cut, takes no
// verdict with it: not from the feed, not from the disk. Nor an event.
func TestVerdictWhateverTheBody(t *testing.T) {
	for name, body := range map[string]string{
		"Latin-1":                "caf\xe9",
		"gzip":                   "\x1f\x8b\x08\x00",
		"cut within a character": strings.Repeat("a", 10<<10-1) + strings.Repeat("é", 10),
	} {
		t.Run(name, func(t *testing.T) {
			missed := wire.Cleaned()
			r := newRig(t)
			r.app.says("ready", body)
			r.app.says("live", body)
			r.app.answer("live", http.StatusFound) // the body becomes a warning
			r.want("u", func(c *v1.Container) { c.ReadinessProbe, c.LivenessProbe = r.probe("ready"), r.probe("live") })
			r.runs("u", "c1", 0)
			r.becomes("u", readiness, success)
			r.becomes("u", liveness, success)
			r.Eventually("the event", func() bool { return len(r.said()) > 0 })
			said := r.verdict("u", readiness).GetMessage()
			if said == "" || len(said) > 10<<10 {
				t.Errorf("the verdict has a message of %d bytes", len(said))
			}
			r.stop()
			r.start()
			r.Eventually("the second life", func() bool { return r.verdicts.Complete() })
			if v := r.verdict("u", readiness); v.GetResult() != success || v.GetMessage() != said {
				t.Errorf("after a restart: %v", v)
			}
			if n := wire.Cleaned() - missed; n != 0 {
				t.Errorf("%d messages were cleaned only as they were written", n)
			}
		})
	}
}

// failing is a runtime in which every command fails and says what is no text.
type failing struct{ grpc.ClientConnInterface }

func (failing) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	proto.Merge(reply.(proto.Message), &runtimeapi.ExecSyncResponse{ExitCode: 1, Stdout: []byte("caf\xe9")})
	return nil
}

// TestFailedLivenessWhateverItsOutput: it is the container's end all the same.
func TestFailedLivenessWhateverItsOutput(t *testing.T) {
	missed := wire.Cleaned()
	r := newRig(t)
	r.stop()
	r.runtime = failing{}
	r.start()
	r.want("u", func(c *v1.Container) {
		c.LivenessProbe = r.probe("")
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}
	})
	r.runs("u", "c1", 0)
	r.becomes("u", liveness, failure)
	r.Eventually("the event", func() bool { return len(r.said()) > 0 })
	want := "Warning Unhealthy ns/name-u spec.containers{c}: Liveness probe failed: caf\uFFFD"
	if got := r.said()[0]; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if n := wire.Cleaned() - missed; n != 0 {
		t.Errorf("%d messages were cleaned only as they were written", n)
	}
}
