// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/sextant-node/sextant/pkg/credential"
	"github.com/sextant-node/sextant/services/config/internal/renewal"
	"github.com/sextant-node/sextant/services/config/internal/watch"
)

// manage holds the better of the certificate in the folder and that of the
// kubeconfig, and asks for another one when it is time.
func (h *Holder) manage(ctx context.Context, s Settings, given *credential.Kubeconfig, givenErr error, now time.Time) time.Duration {
	base, bootstrap, err := given, (*credential.Kubeconfig)(nil), givenErr
	if s.Bootstrap != "" {
		var files []string
		var bootstrapErr error
		bootstrap, files, bootstrapErr = credential.Load(s.Bootstrap)
		h.files = append(h.files, files...)
		if base == nil {
			base = bootstrap
			if bootstrapErr != nil {
				err = bootstrapErr
			}
		}
	}
	if base == nil {
		h.stopAsking()
		h.lose(s, err)
		return period
	}
	if h.store == nil || h.store.dir != s.Dir {
		h.store = newStore(s.Dir)
	}
	pair, leaf, storeErr := h.store.current(s.Node)
	stored := h.certificate(leaf, now)
	own := h.certificate(given.Leaf(), now)
	if leaf != nil && own != nil && given.Leaf().Equal(leaf) {
		own = nil
	}
	plan := renewal.Decide(renewal.Facts{Rotate: s.Rotate, Bootstrap: bootstrap != nil, Stored: stored, Own: own}, now)

	var use *credential.Kubeconfig
	var at *x509.Certificate
	switch plan.Use {
	case renewal.FromStore:
		use, at = base.WithCertificate(pair), leaf
	case renewal.FromKubeconfig:
		use, at = given, given.Leaf()
	}
	h.ask(ctx, s, plan, ways{bootstrap: bootstrap, current: use}, now)
	trouble := h.troubleOf(s, plan, at, storeErr)
	if use == nil {
		h.hold(s, nil, "", &noCertificate{trouble.Text}, trouble)
	} else {
		h.hold(s, use, fingerprint(at), nil, trouble)
	}
	h.remember(plan.State)
	return h.until(plan, now)
}

// noCertificate is why there is no credential.
type noCertificate struct{ text string }

func (n *noCertificate) Error() string { return n.text }

// certificate is what the decision has to know of one.
func (h *Holder) certificate(leaf *x509.Certificate, now time.Time) *renewal.Certificate {
	if leaf == nil {
		return nil
	}
	print := fingerprint(leaf)
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &renewal.Certificate{Life: credential.LifeOf(leaf), Doubted: h.doubted[print], Issued: h.issued[print]}
	if since, ok := h.refusals[print]; ok {
		c.Refused = max(now.Sub(since), 1)
	}
	return c
}

// troubleOf says what is not as it should be.
func (h *Holder) troubleOf(s Settings, plan renewal.Plan, leaf *x509.Certificate, storeErr error) (t Trouble) {
	switch plan.State {
	case renewal.Good, renewal.Due:
		return Trouble{}
	case renewal.Missing:
		t = Trouble{Text: plan.State.String(), Waiting: len(plan.Ask) > 0}
	case renewal.Expired:
		t.Text = expired(leaf.NotAfter)
	default:
		t.Text = plan.State.String()
	}
	switch {
	case storeErr != nil:
		t.Text += ": " + storeErr.Error()
	case len(plan.Ask) == 0 && plan.State != renewal.Doubted && plan.State != renewal.Early:
		t.Text += "; there is no bootstrap kubeconfig to ask for another one with"
	case h.asked != nil && h.asked.progress() != "":
		t.Text += ": " + h.asked.progress()
	case h.life.failed != "":
		t.Text += ": " + h.life.failed
	}
	return t
}

// remember logs each new situation once.
func (h *Holder) remember(state renewal.State) {
	if h.life.state != state {
		h.cfg.Log.Info("client certificate", "state", state.String())
		h.life.state = state
	}
}

// until is how long nothing has to be looked at.
func (h *Holder) until(plan renewal.Plan, now time.Time) time.Duration {
	wait := period
	if !plan.Look.IsZero() {
		wait = min(wait, plan.Look.Sub(now))
	}
	if len(plan.Ask) > 0 && h.asked == nil {
		wait = min(wait, h.life.again.Sub(now))
	}
	return max(wait, 10*time.Millisecond)
}

// watch wakes Run when a file changes.
func (h *Holder) watch(ctx context.Context, files []string) (stop func()) {
	round, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It returns no error: without inotify there is the period.
		_ = watch.Run(round, watch.Config{Paths: files, Period: time.Hour, Look: h.wake.Send, Log: h.cfg.Log})
	}()
	return func() {
		end()
		<-done
	}
}
