// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"
)

// signer issues what it is asked for with a key of its own, when it is told to.
type signer struct {
	t       *testing.T
	key     *ecdsa.PrivateKey
	now     time.Time
	answer  func(Request) (Answer, error)
	asked   []string // names, "new" for the first
	serial  int64
	another bool // the certificate is for another key
}

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newSigner(t *testing.T) (*signer, *Keeper) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{t: t, key: key, now: start}
	s.answer = s.issue
	return s, New(func() time.Time { return s.now })
}

// issue grants an hour, to be refreshed after 40 minutes.
func (s *signer) issue(r Request) (Answer, error) {
	s.t.Helper()
	csr, err := x509.ParseCertificateRequest(r.PKCS10)
	if err != nil || csr.CheckSignature() != nil || csr.Subject.String() != "" {
		s.t.Fatalf("request of %v, %v", csr.Subject, err)
	}
	s.serial++
	public := csr.PublicKey
	if s.another {
		public = s.key.Public()
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(s.serial), NotBefore: s.now, NotAfter: s.now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	text := "# leaf\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"x": "y"}, Bytes: der}))
	return Answer{Name: "req-1", Chain: text + text, Refresh: s.now.Add(40 * time.Minute)}, nil
}

func (s *signer) get(k *Keeper, keyType string) (*Credential, time.Time, error) {
	return k.Get(Source{UID: "u", Volume: "v"}, keyType, func(r Request) (Answer, error) {
		name := r.Name
		if name == "" {
			name = "new"
		}
		s.asked = append(s.asked, name)
		return s.answer(r)
	})
}

func (s *signer) wantAsked(names string) {
	s.t.Helper()
	if got := strings.Join(s.asked, " "); got != names {
		s.t.Errorf("asked for %s, want %s", got, names)
	}
	s.asked = nil
}

func TestKeyTypes(t *testing.T) {
	for _, keyType := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		s, k := newSigner(t)
		c, refresh, err := s.get(k, keyType)
		if err != nil {
			t.Fatalf("%s: %v", keyType, err)
		}
		pair, err := tls.X509KeyPair(c.Chain, c.Key)
		if err != nil || len(pair.Certificate) != 2 {
			t.Errorf("%s: %d certificates, %v", keyType, len(pair.Certificate), err)
		}
		if !strings.HasPrefix(string(c.Key), "-----BEGIN PRIVATE KEY-----\n") || strings.Contains(string(c.Chain), "leaf") || strings.Contains(string(c.Chain), "x: y") {
			t.Errorf("%s: %s%s", keyType, c.Key, c.Chain)
		}
		if refresh != start.Add(40*time.Minute) || c.Ends != start.Add(time.Hour) {
			t.Errorf("%s: refresh %s, ends %s", keyType, refresh, c.Ends)
		}
	}
	s, k := newSigner(t)
	if _, _, err := s.get(k, "DSA"); err == nil || err.Error() != `keyType: unknown type "DSA"` {
		t.Errorf("%v", err)
	}
}

func TestWaitsForTheSigner(t *testing.T) {
	s, k := newSigner(t)
	s.answer = func(Request) (Answer, error) { return Answer{Name: "req-1"}, nil }
	for range 2 {
		if _, _, err := s.get(k, "ED25519"); !errors.Is(err, ErrWait) {
			t.Fatalf("%v", err)
		}
	}
	away := errors.New("away")
	s.answer = func(Request) (Answer, error) { return Answer{}, away }
	if _, _, err := s.get(k, "ED25519"); !errors.Is(err, away) {
		t.Fatalf("%v", err)
	}
	s.answer = func(Request) (Answer, error) { return Answer{}, ErrGone }
	if _, _, err := s.get(k, "ED25519"); !errors.Is(err, ErrWait) {
		t.Fatalf("%v", err)
	}
	s.answer = s.issue
	first, _, err := s.get(k, "ED25519")
	if err != nil {
		t.Fatal(err)
	}
	s.wantAsked("new req-1 req-1 req-1 new")
	if again, _, err := s.get(k, "ED25519"); err != nil || again != first {
		t.Errorf("not kept: %v", err)
	}
	k.Drop("other")
	s.wantAsked("")
	k.Drop("u")
	if again, _, err := s.get(k, "ED25519"); err != nil || again == first {
		t.Errorf("kept for a pod that went: %v", err)
	}
}

func TestRefresh(t *testing.T) {
	s, k := newSigner(t)
	first, _, err := s.get(k, "ED25519")
	if err != nil {
		t.Fatal(err)
	}
	s.now = start.Add(41 * time.Minute)
	s.answer = func(Request) (Answer, error) { return Answer{Name: "req-2"}, nil }
	c, again, err := s.get(k, "ED25519")
	if err != nil || c != first || again != s.now.Add(poll) {
		t.Errorf("while the signer takes its time: other %v, again in %s, %v", c != first, again.Sub(s.now), err)
	}
	s.now = start.Add(61 * time.Minute)
	if _, _, err := s.get(k, "ED25519"); !errors.Is(err, ErrWait) {
		t.Errorf("after its end: %v", err)
	}
	s.answer = s.issue
	if c, again, err = s.get(k, "ED25519"); err != nil || c == first || again != s.now.Add(40*time.Minute) {
		t.Errorf("same %v, again in %s, %v", c == first, again.Sub(s.now), err)
	}
	s.wantAsked("new new req-2 req-2")
}

func TestRefusal(t *testing.T) {
	s, k := newSigner(t)
	refuse := func(Request) (Answer, error) { return Answer{Name: "req-1", Refused: "Denied: no"}, nil }
	s.answer = refuse
	for range 2 {
		if _, _, err := s.get(k, "ED25519"); err == nil || err.Error() != "Denied: no" {
			t.Fatalf("%v", err)
		}
	}
	s.wantAsked("new")
	// One that has a certificate keeps it to its end.
	s, k = newSigner(t)
	first, _, err := s.get(k, "ED25519")
	if err != nil {
		t.Fatal(err)
	}
	s.answer, s.now = refuse, start.Add(41*time.Minute)
	for range 2 {
		if c, again, err := s.get(k, "ED25519"); err != nil || c != first || again != first.Ends {
			t.Fatalf("other %v, again %s, %v", c != first, again, err)
		}
	}
	s.now = start.Add(time.Hour)
	if _, _, err := s.get(k, "ED25519"); err == nil || err.Error() != "Denied: no" {
		t.Errorf("after its end: %v", err)
	}
	s.wantAsked("new new")
}

func TestAnswersThatAreOfNoUse(t *testing.T) {
	s, k := newSigner(t)
	s.another = true
	if _, _, err := s.get(k, "ED25519"); err == nil || err.Error() != "certificate chain: the first certificate is for another key" {
		t.Errorf("%v", err)
	}
	s.another = false
	s.answer = func(Request) (Answer, error) { return Answer{Name: "req-1", Chain: "nothing"}, nil }
	if _, _, err := s.get(k, "ED25519"); err == nil || err.Error() != "certificate chain: there is no certificate" {
		t.Errorf("%v", err)
	}
	s.answer = func(r Request) (Answer, error) {
		s.now = start.Add(-2 * time.Hour)
		defer func() { s.now = start }()
		return s.issue(r)
	}
	if _, _, err := s.get(k, "ED25519"); err == nil || err.Error() != "certificate chain: the certificate ended at 2026-05-01T11:00:00Z" {
		t.Errorf("%v", err)
	}
	s.wantAsked("new new new") // each with a key of its own
	// A hint when to refresh that is of no use.
	s, k = newSigner(t)
	s.answer = func(r Request) (Answer, error) {
		a, err := s.issue(r)
		a.Refresh = start.Add(2 * time.Hour)
		return a, err
	}
	if _, again, err := s.get(k, "ED25519"); err != nil || again != start.Add(40*time.Minute) {
		t.Errorf("again in %s, %v", again.Sub(start), err)
	}
}
