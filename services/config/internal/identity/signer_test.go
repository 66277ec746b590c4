// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// signer is an API server for certificate signing requests over TLS: it knows
// the token "boot" and the certificates it signed itself, by its own clock.
type signer struct {
	*httptest.Server
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	mu      sync.Mutex
	now     func() time.Time
	lasts   time.Duration
	approve bool
	deny    bool
	away    bool
	noToken bool
	objects map[string]*certificatesv1.CertificateSigningRequest
	users   []string // who made requests
	changed chan struct{}
	serial  int64
}

func newSigner(t *testing.T, now func() time.Time) *signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now().Add(-1000 * time.Hour)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: start, NotAfter: start.Add(100_000 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{
		t: t, key: key, now: now, lasts: 100 * time.Hour, approve: true, serial: 1,
		objects: map[string]*certificatesv1.CertificateSigningRequest{}, changed: make(chan struct{}),
	}
	if s.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// set changes how it answers.
func (s *signer) set(edit func(*signer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s)
	for _, o := range s.objects {
		s.judge(o)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// kubeconfig of a user.
func (s *signer) kubeconfig(user string) string {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw}))
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {%s}}],
contexts: [{name: c, context: {cluster: c, user: u}}]}`, s.URL, ca, user)
}

// user is who a request is of, or empty for nobody.
func (s *signer) user(r *http.Request) string {
	if r.Header.Get("Authorization") == "Bearer boot" && !s.noToken {
		return "boot"
	}
	for _, c := range r.TLS.PeerCertificates {
		if c.CheckSignatureFrom(s.cert) == nil && !s.now().Before(c.NotBefore) && s.now().Before(c.NotAfter) {
			return c.Subject.CommonName
		}
	}
	return ""
}

func (s *signer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	user, away := s.user(r), s.away
	s.mu.Unlock()
	switch {
	case away:
		panic(http.ErrAbortHandler)
	case user == "":
		respond(w, http.StatusUnauthorized, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 401, Reason: metav1.StatusReasonUnauthorized, Message: "Unauthorized"})
	case !strings.HasPrefix(r.URL.Path, "/apis/certificates.k8s.io/v1/certificatesigningrequests"):
		http.NotFound(w, r)
	case r.Method == http.MethodPost:
		s.create(w, r, user)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	case strings.HasSuffix(r.URL.Path, "/certificatesigningrequests"):
		s.mu.Lock()
		list := certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{Kind: "CertificateSigningRequestList", APIVersion: "certificates.k8s.io/v1"}}
		list.ResourceVersion = "1"
		for _, o := range s.objects {
			if r.URL.Query().Get("fieldSelector") == "metadata.name="+o.Name {
				list.Items = append(list.Items, *o)
			}
		}
		s.mu.Unlock()
		respond(w, http.StatusOK, list)
	default:
		s.mu.Lock()
		o := s.objects[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]].DeepCopy()
		s.mu.Unlock()
		respond(w, http.StatusOK, o)
	}
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client tells
}

func (s *signer) create(w http.ResponseWriter, r *http.Request, user string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	o := &certificatesv1.CertificateSigningRequest{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, o); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[o.Name]; ok {
		respond(w, http.StatusConflict, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 409, Reason: metav1.StatusReasonAlreadyExists})
		return
	}
	s.serial++
	o.TypeMeta = metav1.TypeMeta{Kind: "CertificateSigningRequest", APIVersion: "certificates.k8s.io/v1"}
	o.UID, o.ResourceVersion = types.UID(fmt.Sprint(s.serial)), "1"
	o.Spec.Username = user
	s.users = append(s.users, user)
	s.objects[o.Name] = o
	s.judge(o)
	respond(w, http.StatusCreated, o)
}

// judge approves and signs, or denies; the caller holds the lock.
func (s *signer) judge(o *certificatesv1.CertificateSigningRequest) {
	if len(o.Status.Conditions) > 0 {
		return
	}
	if s.deny {
		o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: "True", Reason: "No"}}
		return
	}
	if !s.approve {
		return
	}
	block, _ := pem.Decode(o.Spec.Request)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(s.serial), Subject: csr.Subject, NotBefore: s.now(), NotAfter: s.now().Add(s.lasts),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, csr.PublicKey, s.key)
	if err != nil {
		s.t.Error(err)
	}
	o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True"}}
	o.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// watch sends each state of one request.
func (s *signer) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	kind := "ADDED"
	for {
		s.mu.Lock()
		var all []*certificatesv1.CertificateSigningRequest
		for _, o := range s.objects {
			if r.URL.Query().Get("fieldSelector") == "metadata.name="+o.Name {
				all = append(all, o.DeepCopy())
			}
		}
		changed := s.changed
		s.mu.Unlock()
		for _, o := range all {
			if out.Encode(map[string]any{"type": kind, "object": o}) != nil {
				return
			}
		}
		if kind == "ADDED" && r.URL.Query().Get("sendInitialEvents") == "true" {
			mark := &certificatesv1.CertificateSigningRequest{TypeMeta: metav1.TypeMeta{Kind: "CertificateSigningRequest", APIVersion: "certificates.k8s.io/v1"}}
			mark.ResourceVersion, mark.Annotations = "1", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			if out.Encode(map[string]any{"type": "BOOKMARK", "object": mark}) != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		kind = "MODIFIED"
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}
