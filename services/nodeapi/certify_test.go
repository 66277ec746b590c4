// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
)

// signer is config's answer to requests for certificates: those asked for so
// far, and what becomes of them.
type signer struct {
	asked  []string // each different request, as PEM
	times  int
	grant  bool
	deny   string
	issued func(*x509.CertificateRequest) []byte
}

// Certify implements ConfigService.
func (v *reviews) Certify(_ context.Context, req *configv1.CertifyRequest) (*configv1.CertifyResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return nil, v.err
	}
	v.signer.times++
	if text := string(req.GetRequest()); !slices.Contains(v.signer.asked, text) {
		v.signer.asked = append(v.signer.asked, text)
	}
	block, _ := pem.Decode(req.GetRequest())
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	answer := &configv1.CertifyResponse{Name: "csr-1", State: configv1.CertifyState_CERTIFY_STATE_PENDING, Message: "waits to be approved"}
	switch {
	case v.signer.deny != "":
		answer.State, answer.Message = configv1.CertifyState_CERTIFY_STATE_DENIED, v.signer.deny
	case v.signer.grant:
		answer.State, answer.Certificate = configv1.CertifyState_CERTIFY_STATE_ISSUED, v.signer.issued(csr)
	}
	return answer, nil
}

// signs issues certificates that last so long, from this node's clock on.
func (r *rig) signs(lasts time.Duration) func(*x509.CertificateRequest) []byte {
	serial := int64(100)
	return func(csr *x509.CertificateRequest) []byte {
		serial++
		now := time.Now().Add(time.Duration(r.ahead.Load()))
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses,
			NotBefore: now.Add(-time.Second), NotAfter: now.Add(lasts), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, r.ca.cert, csr.PublicKey, r.ca.key)
		if err != nil {
			r.Error(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
}

// addresses are status' part: the Node's.
func (r *rig) addresses(ips ...string) {
	r.Helper()
	status := v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}}}
	for _, ip := range ips {
		status.Addresses = append(status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	data, err := status.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.node.Set(r.Context(), "node", &statusv1.NodeReport{Name: "n1", Status: data}); err != nil {
		r.Fatal(err)
	}
	r.node.SetComplete(r.Context(), true)
}

func (r *rig) signer() signer {
	r.reviews.mu.Lock()
	defer r.reviews.mu.Unlock()
	return r.reviews.signer
}

func bootstrapping(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.ServerTLSBootstrap = true }

// TestServingCertificateByRequest: asked for with the node's addresses, shown
// when it was signed, and again when addresses or the time ask for another.
func TestServingCertificateByRequest(t *testing.T) {
	r := newRig(t, bootstrapping)
	r.reviews.set(func(v *reviews) { v.signer.issued = r.signs(time.Hour) })
	if _, err := tls.Dial("tcp", address(r.port), &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("a certificate is shown that nobody signed")
	}
	health := func(part string) {
		t.Helper()
		r.Eventually(part, func() bool { return strings.Contains(r.kit.Hello().GetHealthReason(), part) })
	}
	health("the node's addresses")
	if n := r.signer().times; n != 0 {
		t.Errorf("asked %d times before the addresses are known", n)
	}
	r.addresses("127.0.0.1")
	health("csr-1 waits to be approved")
	r.reviews.set(func(v *reviews) { v.err = rpc.Unavailable.Errorf("no API server") })
	health("no API server")
	r.reviews.set(func(v *reviews) { v.err, v.signer.grant = nil, true })
	shows := func(what string, is func(*x509.Certificate) bool) *x509.Certificate {
		t.Helper()
		var shown *x509.Certificate
		r.Eventually(what, func() bool {
			conn, err := tls.Dial("tcp", address(r.port), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return false
			}
			defer conn.Close() //nolint:errcheck // only read from
			shown = conn.ConnectionState().PeerCertificates[0]
			return is(shown)
		})
		return shown
	}
	first := shows("the signed certificate", func(c *x509.Certificate) bool { return c.VerifyHostname("127.0.0.1") == nil })
	if first.Subject.String() != "CN=system:node:n1,O=system:nodes" || len(r.signer().asked) != 1 {
		t.Errorf("%s after %d requests", first.Subject, len(r.signer().asked))
	}
	r.Eventually("healthy", func() bool { return r.kit.Hello().GetHealth() == nodev1.Health_HEALTH_SERVING })

	r.addresses("127.0.0.1", "127.0.0.2")
	second := shows("the new address", func(c *x509.Certificate) bool { return c.VerifyHostname("127.0.0.2") == nil })
	if len(r.signer().asked) != 2 {
		t.Errorf("%d requests for two certificates", len(r.signer().asked))
	}

	// Refused: the former one goes on, and it is said.
	r.reviews.set(func(v *reviews) { v.signer.deny = "NotToday" })
	r.addresses("127.0.0.1", "127.0.0.3")
	health("NotToday")
	if !shownBy(t, r.port).Equal(second) {
		t.Error("the former certificate is gone")
	}

	// Due: the clock moves, and nobody refuses any more. It also ends the wait
	// after the refusal.
	r.reviews.set(func(v *reviews) { v.signer.deny = "" })
	r.ahead.Store(int64(58 * time.Minute))
	r.addresses("127.0.0.1", "127.0.0.2")
	third := shows("the renewed certificate", func(c *x509.Certificate) bool { return c.NotAfter.After(second.NotAfter) })
	if third.NotAfter.Sub(second.NotAfter) < 50*time.Minute {
		t.Errorf("renewed until %v, before until %v", third.NotAfter, second.NotAfter)
	}
}
