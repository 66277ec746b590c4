// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/klog/v2"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/credential"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/renewal"
)

// retries are the waits after requests that failed.
var retries = backoff.Doubling{Least: time.Second, Most: 30 * time.Second}

// Waits of requests.
const (
	// retryDenied is the wait after a request that was denied.
	retryDenied = 5 * time.Minute
	// approvalWait is how long one request is waited for before it is looked up
	// again (kubelet: 15 m; the first certificate 1 h).
	approvalWait = 15 * time.Minute
	// answerWait bounds the API server's answer to a new request.
	answerWait = 20 * time.Second
)

// ways are the users a request can be made as.
type ways struct{ bootstrap, current *credential.Kubeconfig }

func (w ways) of(r renewal.Request) *credential.Kubeconfig {
	if r == renewal.WithBootstrap {
		return w.bootstrap
	}
	return w.current
}

func (a *asked) progress() string {
	if s := a.state.Load(); s != nil {
		return *s
	}
	return ""
}

func (a *asked) say(text string) { a.state.Store(&text) }

// ask brings what is under way in line with the plan.
func (h *Holder) ask(ctx context.Context, s Settings, plan renewal.Plan, w ways, now time.Time) {
	if len(plan.Ask) == 0 {
		h.stopAsking()
		if plan.State == renewal.Good {
			h.life.failures, h.life.again, h.life.failed = 0, time.Time{}, ""
		}
		return
	}
	key := fmt.Sprint(s, plan.Ask)
	if h.asked != nil {
		if h.asked.key == key {
			return
		}
		h.stopAsking()
	}
	if wait := h.life.again.Sub(now); wait > 0 && wait <= retryDenied {
		return
	}
	round, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	a := &asked{key: key, cancel: cancel, done: make(chan struct{})}
	h.asked = a
	store := h.store
	go func() {
		defer close(a.done)
		a.leaf, a.err = h.request(round, a, store, s, plan.Ask, w)
		h.wake.Send()
	}()
}

// stopAsking gives up what is under way.
func (h *Holder) stopAsking() {
	if h.asked == nil {
		return
	}
	h.asked.cancel()
	<-h.asked.done
	h.asked = nil
}

// finishAsking takes in what became of a request that has ended.
func (h *Holder) finishAsking(now time.Time) {
	a := h.asked
	if a == nil {
		return
	}
	select {
	case <-a.done:
	default:
		return
	}
	a.cancel()
	h.asked = nil
	if a.err == nil {
		h.life.failures, h.life.again, h.life.failed = 0, time.Time{}, ""
		h.mu.Lock()
		// What was known of former ones is of no use any more.
		h.doubted = map[string]bool{fingerprint(a.leaf): !now.Before(a.leaf.NotAfter)}
		h.issued = map[string]time.Time{fingerprint(a.leaf): now}
		h.refusals = map[string]time.Time{}
		h.mu.Unlock()
		h.cfg.Log.Info("client certificate issued", "expires", a.leaf.NotAfter)
		return
	}
	h.life.failures++
	wait := retries.After(h.life.failures)
	if errors.Is(a.err, errDenied) {
		wait = retryDenied
	}
	h.life.again = now.Add(wait)
	if failed := cluster.Text(a.err); failed != h.life.failed {
		h.life.failed = failed
		h.cfg.Log.Warn("client certificate not issued", "error", a.err.Error())
	}
	h.cfg.RenewError()
}

// errDenied says that a person or a controller refused the request.
var errDenied = errors.New("refused")

// request asks for a certificate in each of the ways until one is heard.
func (h *Holder) request(ctx context.Context, a *asked, store *store, s Settings, order []renewal.Request, w ways) (*x509.Certificate, error) {
	key, keyPEM, err := store.pendingKey()
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	request, err := cert.MakeCSRFromTemplate(key, template(s.Node))
	if err != nil {
		return nil, err
	}
	usages := certificate.DefaultKubeletClientGetUsages(key)
	name := requestName(key, s.Node, usages)
	var all []error
	for _, way := range order {
		issued, err := h.submit(ctx, a, w.of(way), name, request, usages, key)
		switch {
		case err == nil:
			leaf, err := store.update(issued, keyPEM)
			if err != nil {
				return nil, fmt.Errorf("--cert-dir: %w", err)
			}
			return leaf, store.dropKey()
		case errors.Is(err, errDenied):
			return nil, errors.Join(err, store.dropKey()) // the next one needs a new name
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}

// submit makes the request as one user and waits for the certificate.
func (h *Holder) submit(ctx context.Context, a *asked, as *credential.Kubeconfig, name string, request []byte, usages []certificatesv1.KeyUsage, key *ecdsa.PrivateKey) ([]byte, error) {
	data, err := as.Encode()
	if err != nil {
		return nil, err
	}
	client, closing, err := cluster.Settings{UserAgent: h.cfg.UserAgent}.Client(data)
	if err != nil {
		return nil, err
	}
	defer closing()
	answer, cancel := context.WithTimeout(ctx, answerWait)
	name, uid, err := csr.RequestCertificateWithContext(answer, client, request, name, certificatesv1.KubeAPIServerClientKubeletSignerName, nil, usages, key)
	cancel()
	if err != nil {
		return nil, err
	}
	a.say("certificate signing request " + name + " waits to be approved and signed")
	h.wake.Send()
	ctx, cancel = context.WithTimeout(ctx, approvalWait)
	defer cancel()
	issued, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil && (strings.Contains(err.Error(), "is denied") || strings.Contains(err.Error(), "request failed")) {
		return nil, fmt.Errorf("%w: %s: %w", errDenied, name, err)
	}
	return issued, err
}

func template(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{CommonName: userPrefix + node, Organization: []string{"system:nodes"}}}
}

// requestName is the same for the same key, so that a request that is under way
// is found again after a restart.
func requestName(key *ecdsa.PrivateKey, node string, usages []certificatesv1.KeyUsage) string {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil { // a key that was just generated or parsed
		public = []byte(err.Error())
	}
	words := []string{node}
	for _, u := range usages {
		words = append(words, string(u))
	}
	slices.Sort(words)
	sum := sha256.Sum256(append(public, strings.Join(words, "\x00")...))
	return "node-csr-" + base64.RawURLEncoding.EncodeToString(sum[:])
}

func fingerprint(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
