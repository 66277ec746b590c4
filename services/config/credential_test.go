// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// TestServingRequest: nothing but this node's serving certificate can be asked
// for.
func TestServingRequest(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	node := pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	ips := []net.IP{net.IPv4(10, 0, 0, 1)}
	request := func(r x509.CertificateRequest) []byte {
		data, err := cert.MakeCSRFromTemplate(key, &r)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	good := request(x509.CertificateRequest{Subject: node, IPAddresses: ips})
	forged, _ := pem.Decode(good)
	forged.Bytes = append([]byte{}, forged.Bytes...)
	forged.Bytes[len(forged.Bytes)-3] ^= 1
	cases := map[string]struct {
		data []byte
		err  string
	}{
		"good":               {good, ""},
		"names too":          {request(x509.CertificateRequest{Subject: node, IPAddresses: ips, DNSNames: []string{"n1"}}), ""},
		"another node":       {request(x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n2", Organization: node.Organization}, IPAddresses: ips}), "subject"},
		"another group":      {request(x509.CertificateRequest{Subject: pkix.Name{CommonName: node.CommonName, Organization: []string{"system:masters"}}, IPAddresses: ips}), "subject"},
		"one group more":     {request(x509.CertificateRequest{Subject: pkix.Name{CommonName: node.CommonName, Organization: []string{"system:nodes", "system:masters"}}, IPAddresses: ips}), "subject"},
		"no names":           {request(x509.CertificateRequest{Subject: node}), "must name"},
		"a URI":              {request(x509.CertificateRequest{Subject: node, IPAddresses: ips, URIs: []*url.URL{{Scheme: "spiffe", Host: "x"}}}), "must name"},
		"signed by somebody": {pem.EncodeToMemory(forged), "request: "},
		"two requests":       {append(append([]byte{}, good...), good...), "one PEM"},
		"a certificate":      {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "one PEM"},
		"not PEM":            {[]byte("x"), "one PEM"},
		"too long":           {append([]byte(strings.Repeat("\n", maxServingRequest)), good...), "longer than 16384 bytes"},
		"nothing in it":      {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"}), "request: "},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := servingRequest(c.data, "n1")
			switch {
			case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want %q", err, c.err)
			case err != nil && rpc.KindOf(err) != rpc.Invalid:
				t.Errorf("%v is %v", err, rpc.KindOf(err))
			}
		})
	}
	if servingName(good) != servingName(append([]byte{}, good...)) || servingName(good) == servingName(request(x509.CertificateRequest{Subject: node, IPAddresses: ips})) {
		t.Error("the name does not follow the content")
	}
}

// TestForeignName: a request names the node's own addresses and nothing else.
func TestForeignName(t *testing.T) {
	node := &v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{
		{Type: v1.NodeHostName, Address: "n1"}, {Type: v1.NodeInternalDNS, Address: "n1.internal"},
		{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeInternalIP, Address: "fd00:0:0::1"},
	}}}
	ip := net.ParseIP
	for _, c := range []struct {
		dns  []string
		ips  []net.IP
		node *v1.Node
		want string
	}{
		{[]string{"n1"}, []net.IP{ip("10.0.0.1"), ip("fd00::1")}, node, ""},
		{[]string{"n1", "n1.internal"}, nil, node, ""},
		{[]string{"n1", "kubernetes.default.svc"}, nil, node, `"kubernetes.default.svc"`},
		{[]string{"*"}, nil, node, `"*"`},
		{[]string{"10.0.0.2"}, nil, node, `"10.0.0.2"`},
		{nil, []net.IP{ip("10.0.0.1"), ip("10.0.0.2")}, node, `"10.0.0.2"`},
		{nil, []net.IP{ip("::1")}, node, `"::1"`},
		{[]string{"n1"}, nil, nil, `"n1"`}, // the Node was not read yet
	} {
		if got := foreignName(&x509.CertificateRequest{DNSNames: c.dns, IPAddresses: c.ips}, c.node); got != c.want {
			t.Errorf("%v %v: %q, want %q", c.dns, c.ips, got, c.want)
		}
	}
}

// TestCertifyIsForOwnNames: what names another host never gets to the API server.
func TestCertifyIsForOwnNames(t *testing.T) {
	m, server := joined(t, "")
	server.Put("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}}}})
	m.start()
	m.until("the Node", func() bool { return slices.Contains(strings.Fields(m.objects()), "Node//n1") && m.obj.Complete() }) // "Node//n1?" has not been read
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certify := func(name string) error {
		csr, err := cert.MakeCSRFromTemplate(key, &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}, DNSNames: []string{name},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.client.Certify(t.Context(), &configv1.CertifyRequest{Request: csr})
		return err
	}
	asked := func() int { return server.Requests("get certificatesigningrequests") }
	if err := certify("other"); !rpc.Is(err, rpc.Unavailable) || !strings.Contains(err.Error(), `"other" is no address`) || asked() != 0 {
		t.Errorf("another host: %v, asked for %d times", err, asked())
	}
	if _ = certify("n1"); asked() != 1 {
		t.Errorf("its own name: asked for %d times", asked())
	}
}

func TestCertifyResponse(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: kind, Reason: "R", Message: "m"}
	}
	approved, denied, failed := condition(certificatesv1.CertificateApproved), condition(certificatesv1.CertificateDenied), condition(certificatesv1.CertificateFailed)
	cases := []struct {
		name        string
		conditions  []certificatesv1.CertificateSigningRequestCondition
		certificate string
		state       configv1.CertifyState
		message     string
	}{
		{"new", nil, "", configv1.CertifyState_CERTIFY_STATE_PENDING, "waits to be approved"},
		{"approved", []certificatesv1.CertificateSigningRequestCondition{approved}, "", configv1.CertifyState_CERTIFY_STATE_PENDING, "approved, waits to be signed"},
		{"signed", []certificatesv1.CertificateSigningRequestCondition{approved}, "c", configv1.CertifyState_CERTIFY_STATE_ISSUED, ""},
		{"signed, not approved", nil, "c", configv1.CertifyState_CERTIFY_STATE_PENDING, "waits to be approved"},
		{"denied", []certificatesv1.CertificateSigningRequestCondition{denied}, "", configv1.CertifyState_CERTIFY_STATE_DENIED, "R: m"},
		{"failed after approval", []certificatesv1.CertificateSigningRequestCondition{approved, failed}, "", configv1.CertifyState_CERTIFY_STATE_DENIED, "R: m"},
	}
	for _, c := range cases {
		csr := &certificatesv1.CertificateSigningRequest{}
		csr.Name = "csr-1"
		csr.Status.Conditions, csr.Status.Certificate = c.conditions, []byte(c.certificate)
		got := certifyResponse(csr)
		if got.GetName() != "csr-1" || got.GetState() != c.state || got.GetMessage() != c.message || (len(got.GetCertificate()) > 0) != (c.state == configv1.CertifyState_CERTIFY_STATE_ISSUED) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestReadServing: a file that is of no use leaves its last content in force,
// but not that of another file.
func TestReadServing(t *testing.T) {
	dir := t.TempDir()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("n1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := &kubeletconfig.Config{}
	if s := readServing(c, &configv1.Serving{}); len(s.GetClientCa())+len(s.GetKey()) > 0 || s.GetClientCaError()+s.GetCertificateError() != "" {
		t.Errorf("nothing configured: %v", s)
	}
	k := &c.Kubelet
	k.Authentication.X509.ClientCAFile, k.TLSCertFile, k.TLSPrivateKeyFile = write("ca", certPEM), write("crt", certPEM), write("key", keyPEM)
	good := readServing(c, &configv1.Serving{})
	if string(good.GetClientCa()) != string(certPEM) || string(good.GetCertificate()) != string(certPEM) || string(good.GetKey()) != string(keyPEM) {
		t.Fatalf("good files: %v", good)
	}
	write("ca", []byte("nonsense"))
	write("key", []byte("half writ"))
	bad := readServing(c, good)
	if string(bad.GetClientCa()) != string(certPEM) || string(bad.GetKey()) != string(keyPEM) ||
		!strings.Contains(bad.GetClientCaError(), "clientCAFile") || !strings.Contains(bad.GetCertificateError(), "tlsCertFile") {
		t.Errorf("bad files: %v", bad)
	}
	k.Authentication.X509.ClientCAFile, k.TLSCertFile = filepath.Join(dir, "other-ca"), filepath.Join(dir, "other-crt")
	if other := readServing(c, good); len(other.GetClientCa())+len(other.GetCertificate())+len(other.GetKey()) > 0 || other.GetClientCaError() == "" {
		t.Errorf("other files: %v", other)
	}
}
