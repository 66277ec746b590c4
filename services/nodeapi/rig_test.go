// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/nodeapi"
	"github.com/sextant-node/sextant/test/ports"
	"github.com/sextant-node/sextant/test/standin"
)

// rig is a nodeapi on real ports with real certificates, between stand-ins for
// config, podworker and status.
type rig struct {
	*standin.House
	kubelet  *feed.Owner[*configv1.KubeletConfig]
	serving  *feed.Owner[*configv1.Serving]
	node     *feed.Owner[*statusv1.NodeReport]
	pods     *feed.Owner[*configv1.DesiredPod]
	atAPI    *feed.Owner[*configv1.Object]
	statuses *feed.Owner[*statusv1.PodReport]
	reviews  *reviews
	worker   *worker
	ca       *authority
	kit      *service.Kit

	stopWorker func()
	// stopNeighbours stops config and status.
	stopNeighbours func()
	ahead          atomic.Int64 // of the real clock, nanoseconds
	port           int32        // HTTPS
	healthz        int32
	readOnly       int32
	logs           string // the folder of node logs
}

// reviews is config's part: it knows the token "good", and what its user may do.
type reviews struct {
	configv1.UnimplementedConfigServiceServer
	mu      sync.Mutex
	err     error
	allow   map[string]bool // "user verb subresource"
	tokens  int
	access  int
	details []string
	signer  signer
	wait    chan struct{} // nil: tokens are reviewed at once
}

func (v *reviews) ReviewToken(ctx context.Context, req *configv1.ReviewTokenRequest) (*configv1.ReviewTokenResponse, error) {
	v.mu.Lock()
	v.tokens++
	if wait := v.wait; wait != nil {
		v.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		v.mu.Lock()
	}
	defer v.mu.Unlock()
	if v.err != nil {
		return nil, v.err
	}
	review := &authenticationv1.TokenReview{}
	if err := review.Unmarshal(req.GetReview()); err != nil {
		return nil, err
	}
	if review.Spec.Token == "good" {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
			Username: "alice", UID: "1", Groups: []string{"admins", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"all"}},
		}}
	}
	data, err := review.Marshal()
	return &configv1.ReviewTokenResponse{Review: data}, err
}

func (v *reviews) ReviewAccess(_ context.Context, req *configv1.ReviewAccessRequest) (*configv1.ReviewAccessResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.access++
	if v.err != nil {
		return nil, v.err
	}
	review := &authorizationv1.SubjectAccessReview{}
	if err := review.Unmarshal(req.GetReview()); err != nil {
		return nil, err
	}
	a := review.Spec.ResourceAttributes
	v.details = append(v.details, fmt.Sprintf("%s %s %v %s %s/%s %s %s", review.Spec.User, review.Spec.UID, review.Spec.Groups, a.Verb, a.Resource, a.Subresource, a.Version, a.Name))
	review.Status.Allowed = v.allow[fmt.Sprintf("%s %s %s", review.Spec.User, a.Verb, a.Subresource)]
	data, err := review.Marshal()
	return &configv1.ReviewAccessResponse{Review: data}, err
}

func (v *reviews) set(edit func(*reviews)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	edit(v)
}

func (v *reviews) counts() (tokens, access int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tokens, v.access
}

// newRig starts everything and waits for the configured ports.
func newRig(t testing.TB, edit func(*kubeletconfig.Config)) *rig {
	t.Helper()
	return newRigOf(t, standin.New(t), nodeapi.Config{NodeName: "n1"}, edit)
}

func newRigOf(t testing.TB, in *standin.House, cfg nodeapi.Config, edit func(*kubeletconfig.Config)) *rig {
	t.Helper()
	r := &rig{
		House: in, reviews: &reviews{allow: map[string]bool{}}, worker: newWorker(), ca: newAuthority(t),
		port: int32(ports.Loopback(t)), healthz: int32(ports.Loopback(t)), readOnly: int32(ports.Loopback(t)),
	}
	config := r.Kit(house.Config)
	r.kubelet = service.Owner(config, house.ConfigKubelet)
	r.serving = service.Owner(config, house.ConfigServing)
	r.pods = service.Owner(config, house.ConfigPods)
	r.atAPI = service.Owner(config, house.ConfigStatuses)
	configv1.RegisterConfigServiceServer(config.Server, r.reviews)
	stopConfig := r.Start(config)
	status := r.Kit(house.Status)
	r.statuses = service.Owner(status, house.StatusPods)
	r.node = service.Owner(status, house.StatusNode)
	stopStatus := r.Start(status)
	r.stopNeighbours = func() { stopConfig(); stopStatus() }
	r.startWorker()
	r.kit = r.Kit(house.NodeAPI)
	r.kit.Level = &slog.LevelVar{}
	r.logs = filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(r.logs, 0o755); err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }
	cfg.LogDir = r.logs
	r.formerCertificate()
	if err := nodeapi.New(cfg, nodeapi.Deps{Kit: r.kit, Now: now}); err != nil {
		t.Fatal(err)
	}
	r.Start(r.kit)
	r.configure(edit)
	r.opens(r.port)
	return r
}

// configure publishes a configuration: certificates of the rig's authority,
// webhooks, no anonymous callers.
func (r *rig) configure(edit func(*kubeletconfig.Config)) {
	r.Helper()
	on, off := true, false
	conf := &kubeletconfig.Config{
		Kubelet: kubeletv1beta1.KubeletConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: kubeletconfig.APIVersion, Kind: kubeletconfig.Kind},
			Address:  "127.0.0.1", Port: r.port, HealthzPort: &r.healthz, HealthzBindAddress: "127.0.0.1",
			Authentication: kubeletv1beta1.KubeletAuthentication{
				X509:      kubeletv1beta1.KubeletX509Authentication{ClientCAFile: r.ca.file},
				Webhook:   kubeletv1beta1.KubeletWebhookAuthentication{Enabled: &on, CacheTTL: metav1.Duration{Duration: 2 * time.Minute}},
				Anonymous: kubeletv1beta1.KubeletAnonymousAuthentication{Enabled: &off},
			},
			Authorization: kubeletv1beta1.KubeletAuthorization{
				Mode:    kubeletv1beta1.KubeletAuthorizationModeWebhook,
				Webhook: kubeletv1beta1.KubeletWebhookAuthorization{CacheAuthorizedTTL: metav1.Duration{Duration: 5 * time.Minute}, CacheUnauthorizedTTL: metav1.Duration{Duration: 30 * time.Second}},
			},
		},
		Node: kubeletconfig.Node{Name: "n1", CertDir: r.certDir()},
	}
	if edit != nil {
		edit(conf)
	}
	r.readFiles(conf)
	standin.SetKubelet(r.House, r.kubelet, conf)
}

// certDir is the node's certificate folder.
func (r *rig) certDir() string {
	r.Helper()
	dir := r.kit.StateDir() + "-pki"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.Fatal(err)
	}
	return dir
}

// formerCertificate leaves a certificate in the node's folder, as an earlier life of it
// does: to make keys for each rig takes longer than most tests.
func (r *rig) formerCertificate() {
	r.Helper()
	dir := house.CertDir(r.certDir(), house.NodeAPI)
	pair, err := former()
	if err = errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "kubelet.crt"), pair.cert, 0o644),
		os.WriteFile(filepath.Join(dir, "kubelet.key"), pair.key, 0o600)); err != nil {
		r.Fatal(err)
	}
}

// former is the certificate of a node n1, which signed it itself, in PEM.
var former = sync.OnceValues(func() (pair struct{ cert, key []byte }, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "n1"}, DNSNames: []string{"n1"}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return pair, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	pair.cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	pair.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return pair, err
})

// readFiles is config's part: it publishes what the configuration's files hold.
func (r *rig) readFiles(conf *kubeletconfig.Config) {
	r.Helper()
	k := conf.Kubelet
	files := &configv1.Serving{ClientCaFile: k.Authentication.X509.ClientCAFile, CertificateFile: k.TLSCertFile}
	var err error
	if files.ClientCa, err = os.ReadFile(files.ClientCaFile); err != nil {
		files.ClientCaError = "authentication.x509.clientCAFile: " + err.Error()
	}
	if files.CertificateFile != "" {
		var keyErr error
		files.Certificate, err = os.ReadFile(k.TLSCertFile)
		files.Key, keyErr = os.ReadFile(k.TLSPrivateKeyFile)
		if err = errors.Join(err, keyErr); err != nil {
			files.CertificateError = "tlsCertFile, tlsPrivateKeyFile: " + err.Error()
		}
	}
	if _, err := r.serving.Set(r.Context(), "node", files); err != nil {
		r.Fatal(err)
	}
	r.serving.SetComplete(r.Context(), true)
}

// alwaysAllow lets everybody do everything.
func alwaysAllow(c *kubeletconfig.Config) {
	on := true
	c.Kubelet.Authentication.Anonymous.Enabled = &on
	c.Kubelet.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
}

func (r *rig) opens(port int32) {
	r.Helper()
	r.Eventually(fmt.Sprintf("port %d is open", port), func() bool {
		conn, err := net.Dial("tcp", address(port))
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

func (r *rig) closes(port int32) {
	r.Helper()
	r.Eventually(fmt.Sprintf("port %d is closed", port), func() bool {
		conn, err := net.Dial("tcp", address(port))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

func address(port int32) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// who is a caller: with a certificate, a token, both or neither.
type who struct {
	certificate *tls.Certificate
	token       string
}

// answer is a response, read whole.
type answer struct {
	code   int
	body   string
	header http.Header
}

func callerTLS(w who) *tls.Config {
	config := &tls.Config{InsecureSkipVerify: true}
	if w.certificate != nil {
		// Whatever authorities the server says it takes: it says none.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return w.certificate, nil }
	}
	return config
}

// tryDial opens a connection of a caller.
func (r *rig) tryDial(w who) (*tls.Conn, error) {
	return tls.Dial("tcp", address(r.port), callerTLS(w))
}

func (r *rig) client(w who) *http.Client {
	transport := &http.Transport{TLSClientConfig: callerTLS(w), DisableKeepAlives: true}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (r *rig) request(w who, method, path string) *http.Response {
	r.Helper()
	req, err := http.NewRequestWithContext(r.House.Context(), method, "https://"+address(r.port)+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	resp, err := r.client(w).Do(req)
	if err != nil {
		r.Fatal(err)
	}
	return resp
}

func (r *rig) do(w who, method, path string) answer {
	r.Helper()
	resp := r.request(w, method, path)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{resp.StatusCode, string(body), resp.Header}
}

// get is do without credentials.
func (r *rig) get(path string) answer {
	r.Helper()
	return r.do(who{}, http.MethodGet, path)
}

// plain asks a port without TLS.
func (r *rig) plain(port int32, path string) answer {
	r.Helper()
	resp, err := http.Get("http://" + address(port) + path)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{resp.StatusCode, string(body), resp.Header}
}

// expect compares an answer's code and a part of its body.
func expect(t testing.TB, what string, a answer, code int, part string) {
	t.Helper()
	if a.code != code || !strings.Contains(a.body, part) {
		t.Errorf("%s: %d %q, want %d with %q", what, a.code, a.body, code, part)
	}
}

// authority signs certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return &authority{key, cert, file}
}

// sign makes a client certificate that lasts for so long from now.
func (a *authority) sign(t *testing.T, name string, lasts time.Duration, usage x509.ExtKeyUsage, groups ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lasts),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
