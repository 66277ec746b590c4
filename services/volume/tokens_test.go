// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"os"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/rpc"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/fakeclock"
)

// TestTokenByAClockThatIsBehind: a token is renewed when four fifths of its life are over,
// though the node's clock, behind by hours, has its end far away.
func TestTokenByAClockThatIsBehind(t *testing.T) {
	const behind, life = 10 * time.Hour, 2 * time.Hour
	r, clock := newRig(t, nil), clocktesting.NewFakeClock(time.Now().Add(-behind))
	r.stop()
	r.start(func(d *volume.Deps) { d.Clock = clock })
	r.tokens.now = func() time.Time { return clock.Now().Add(behind) }
	r.declare(of(t, "u", "- {name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 7200}}]}}\n"))
	r.Eventually("the first token", func() bool { return r.volume("u", "t").GetState() == volumev1.VolumeState_VOLUME_STATE_MOUNTED })
	token := r.path("u", "projected", "t", "token")
	had := r.read(token)
	clock.Step(life*4/5 + time.Second)
	r.replaced("a new token", token, had)
}

// TestTokens: a token is renewed when four fifths of its life are over, by the time alone,
// though another volume of its pod hangs.
func TestTokens(t *testing.T) {
	r, clock := newRig(t, nil), clocktesting.NewFakeClock(time.Now())
	host := stuck{Host: setup.NewHost(r.root), hang: make(chan struct{})}
	r.stop()
	r.start(func(d *volume.Deps) { d.Host, d.Clock = host, clock })
	r.tokens.now = clock.Now
	t.Cleanup(func() { close(host.hang) })
	r.tokens.fail(rpc.Unavailable.Errorf("no API server"))
	r.declare(of(t, "u", `
- {name: hang, hostPath: {path: /dev}}
- {name: t, projected: {sources: [{serviceAccountToken: {path: token}}]}}
`))
	r.Eventually("waiting", func() bool { return strings.Contains(r.volume("u", "t").GetError(), "no API server") })
	if events := r.messages(); len(events) > 0 {
		t.Errorf("events while the API server is away: %v", events)
	}
	r.tokens.fail(nil)
	mounted := func() bool { return r.volume("u", "t").GetState() == volumev1.VolumeState_VOLUME_STATE_MOUNTED }
	fakeclock.Pass(t, clock, "the first token", mounted)
	token := r.path("u", "projected", "t", "token")
	if asked := r.tokens.asked(); asked[0].GetExpiration().GetSeconds() != 3600 || len(asked[0].GetAudiences()) != 0 {
		t.Errorf("asked for %v", asked[0])
	}
	const life = time.Hour
	for range 3 {
		had := r.read(token)
		clock.Step(life*4/5 + time.Second)
		r.replaced("a new token", token, had)
	}
	asked := len(r.tokens.asked())
	clock.Step(life*4/5 - time.Minute)
	r.roundTrip("other")
	if n := len(r.tokens.asked()); n != asked {
		t.Errorf("asked for %d tokens before the time", n-asked)
	}
	// A refusal is said; the token that is there stays.
	r.tokens.fail(rpc.NotFound.Errorf(`serviceaccounts "default" not found`))
	clock.Step(time.Minute + time.Second)
	r.Eventually("the event", func() bool {
		events := r.messages()
		return len(events) == 1 && strings.HasSuffix(events[0], `service account token: serviceaccounts "default" not found`)
	})
	if !mounted() {
		t.Error("a token that cannot be renewed made its volume go")
	}
}

// TestFilesBesideAToken: the volumes after one whose token is being made are not held up by it,
// nor are those whose objects come or change meanwhile.
func TestFilesBesideAToken(t *testing.T) {
	r := newRig(t, nil)
	release := r.tokens.stall()
	t.Cleanup(release)
	r.declare(of(t, "u", `
- {name: t, projected: {sources: [{serviceAccountToken: {path: token}}]}}
- {name: config, configMap: {name: settings}}
- {name: data, emptyDir: {}}
`))
	r.Eventually("the token is asked for", func() bool { return len(r.tokens.asked()) == 1 })
	for _, value := range []string{"b", "c"} {
		r.configMap("settings", map[string]string{"a": value})
		r.becomes("the other files", r.path("u", "configmap", "config", "a"), value)
	}
	r.Eventually("the folder", func() bool {
		info, err := os.Stat(r.path("u", "empty-dir", "data"))
		return err == nil && info.IsDir()
	})
	r.tokens.mu.Lock()
	if r.tokens.left > 0 {
		t.Error("the files were made when the request for the token had been given up")
	}
	r.tokens.mu.Unlock()
	release()
	r.ready("u")
}

// TestTokenLookedAtBefore: a token is renewed when four fifths of its life are over, though
// its volume was made sure of shortly before; one that could not be renewed then is asked for
// again within a minute.
func TestTokenLookedAtBefore(t *testing.T) {
	const due = 8 * time.Minute
	for name, test := range map[string]func(r *rig, clock *clocktesting.FakeClock){
		"looked at": func(r *rig, clock *clocktesting.FakeClock) {
			clock.Step(due - 10*time.Second)
			r.configMap("c", map[string]string{"a": "2"})
			r.becomes("the change", r.path("u", "projected", "t", "a"), "2")
			r.roundTrip("other")
			clock.Step(10 * time.Second)
		},
		"not renewed": func(r *rig, clock *clocktesting.FakeClock) {
			asked := len(r.tokens.asked())
			r.tokens.keep(true)
			clock.Step(due)
			r.Eventually("it is asked for", func() bool { return len(r.tokens.asked()) > asked })
			r.roundTrip("other")
			r.tokens.keep(false)
			clock.Step(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, clock := newRig(t, nil), clocktesting.NewFakeClock(time.Now())
			r.stop()
			r.start(func(d *volume.Deps) { d.Clock = clock })
			r.tokens.now = clock.Now
			r.tokens.keep(false)
			r.configMap("c", map[string]string{"a": "1"})
			r.declare(of(t, "u", "- {name: t, projected: {sources: [{configMap: {name: c}}, {serviceAccountToken: {path: token, expirationSeconds: 600}}]}}\n"))
			r.Eventually("the first token", func() bool { return r.volume("u", "t").GetState() == volumev1.VolumeState_VOLUME_STATE_MOUNTED })
			token := r.path("u", "projected", "t", "token")
			had := r.read(token)
			test(r, clock)
			r.replaced("a new token", token, had)
		})
	}
}
