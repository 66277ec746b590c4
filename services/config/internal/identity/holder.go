// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/pkg/credential"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/config/internal/renewal"
)

// period of looking without a signal: the files are watched, and a certificate says when it
// expires.
const period = 30 * time.Second

// Settings of the identity, from kubelet flags and configuration.
type Settings struct {
	// Kubeconfig and Bootstrap are --kubeconfig and --bootstrap-kubeconfig.
	Kubeconfig, Bootstrap string
	// Dir is the folder of the certificate (house.CertDir).
	Dir string
	// Node is the name of the node.
	Node string
	// Rotate is rotateCertificates.
	Rotate bool
}

// managed reports whether certificates are asked for at all.
func (s Settings) managed() bool { return s.Kubeconfig != "" && (s.Rotate || s.Bootstrap != "") }

// Config of a holder.
type Config struct {
	// Changed is called with Held when that or Trouble differs, from Run's goroutine.
	Changed func(*Held)
	// RenewError counts requests that failed.
	RenewError func()
	UserAgent  string
	Now        func() time.Time
	Log        *slog.Logger
}

// Held is the credential in use.
type Held struct {
	// Kubeconfig is self-contained.
	Kubeconfig []byte
	// Expires is the end of the client certificate; zero for a credential that
	// has none.
	Expires time.Time
}

// Trouble says why the credential may not work, or why there is none.
type Trouble struct {
	Text string
	// Waiting: things take their course, as with the first certificate.
	Waiting bool
}

// Holder holds the credential. Make it with New.
type Holder struct {
	cfg  Config
	wake signal.Signal

	mu       sync.Mutex
	settings Settings
	heldBy   Settings // the settings held belongs to
	held     *Held
	changed  chan struct{} // closed and replaced when held or its settings change
	missing  error         // why there is no credential
	trouble  Trouble
	refusals map[string]time.Time // by fingerprint, since
	using    string               // fingerprint of the certificate held
	doubted  map[string]bool      // by fingerprint
	issued   map[string]time.Time // by fingerprint, in this process

	// Only Run's goroutine touches these.
	files []string
	store *store
	asked *asked
	life  life
}

// life is the course of requests.
type life struct {
	failures int
	// again is when the next request may be made.
	again time.Time
	// state the last log line told.
	state renewal.State
	told  bool
	// failed is why the last request failed, or empty.
	failed string
}

// New makes a holder that holds nothing.
func New(cfg Config) *Holder {
	return &Holder{
		cfg: cfg, wake: signal.New(), changed: make(chan struct{}),
		refusals: map[string]time.Time{}, doubted: map[string]bool{}, issued: map[string]time.Time{},
	}
}

// Configure changes the settings.
func (h *Holder) Configure(s Settings) {
	h.mu.Lock()
	h.settings = s
	h.mu.Unlock()
	h.wake.Send()
}

// Held is the credential in use, or why there is none; changed is closed when
// the answer differs.
func (h *Holder) Held() (held *Held, changed <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held, h.changed, h.missing
}

// Trouble is what is wrong with the credential, if anything.
func (h *Holder) Trouble() Trouble {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trouble
}

// Heard takes in what the API server said to a request made with the
// credential; nil is that it was granted.
func (h *Holder) Heard(err error) {
	if _, answered := apianswer.Of(err); err != nil && !answered {
		return
	}
	refused := apierrors.IsUnauthorized(err)
	h.mu.Lock()
	_, had := h.refusals[h.using]
	switch {
	case h.using == "" || refused == had:
		h.mu.Unlock()
		return
	case refused:
		h.refusals[h.using] = h.cfg.Now()
	default:
		delete(h.refusals, h.using)
	}
	h.mu.Unlock()
	h.wake.Send()
}

// asGiven holds what the kubeconfig has, and nothing else.
func (h *Holder) asGiven(s Settings, given *credential.Kubeconfig, err error, now time.Time) {
	if err != nil {
		h.lose(s, err)
		return
	}
	trouble := Trouble{}
	if leaf := given.Leaf(); leaf != nil && !now.Before(leaf.NotAfter) {
		trouble.Text = expired(leaf.NotAfter) + "; rotateCertificates is off and there is no bootstrap kubeconfig"
	}
	h.hold(s, given, "", nil, trouble)
}

func expired(at time.Time) string {
	return "client certificate expired at " + at.UTC().Format(time.RFC3339)
}

// lose says that there is no credential to be read. The one that was held for
// the same settings stays: a file may be half written.
func (h *Holder) lose(s Settings, err error) {
	h.mu.Lock()
	keep := h.held != nil && h.heldBy == s
	h.mu.Unlock()
	if keep {
		if !h.life.told {
			h.cfg.Log.Warn("credentials not read, the former stay", "error", err.Error())
			h.life.told = true
		}
		return
	}
	h.hold(s, nil, "", err, Trouble{Text: err.Error(), Waiting: true})
}

// hold puts a credential in force.
func (h *Holder) hold(s Settings, k *credential.Kubeconfig, fingerprint string, missing error, trouble Trouble) {
	var next *Held
	if k != nil {
		h.life.told = false
		data, err := k.Encode()
		if err != nil {
			h.lose(s, fmt.Errorf("kubeconfig %s: %w", s.Kubeconfig, err))
			return
		}
		next = &Held{Kubeconfig: data}
		if leaf := k.Leaf(); leaf != nil {
			next.Expires = leaf.NotAfter
		}
	}
	h.mu.Lock()
	same := (h.held == nil) == (next == nil) && (next == nil || bytes.Equal(h.held.Kubeconfig, next.Kubeconfig))
	moved := !same || text(h.missing) != text(missing)
	told := moved || h.trouble != trouble
	h.heldBy, h.missing, h.trouble, h.using = s, missing, trouble, fingerprint
	if moved {
		h.held = next
		close(h.changed)
		h.changed = make(chan struct{})
	}
	h.mu.Unlock()
	if !told {
		return
	}
	switch {
	case moved && next != nil:
		h.cfg.Log.Info("credentials for the API server", "kubeconfig", s.Kubeconfig, "expires", next.Expires)
	case trouble.Text != "":
		h.cfg.Log.Warn("credentials for the API server", "kubeconfig", s.Kubeconfig, "error", trouble.Text)
	}
	held, _, _ := h.Held()
	h.cfg.Changed(held)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// asked is a request under way.
type asked struct {
	key    string // what it was made for
	cancel context.CancelFunc
	done   chan struct{}
	state  atomic.Pointer[string]
	// After done:
	leaf *x509.Certificate
	err  error
}
