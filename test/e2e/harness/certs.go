// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs every certificate of a control plane.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "lab"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, cert: cert, key: key, pem: encode("CERTIFICATE", der)}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return a, a.write("ca", a.pem, keyPEM)
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

func (a *authority) write(name string, cert, key []byte) error {
	if err := os.WriteFile(a.path(name+".crt"), cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(a.path(name+".key"), key, 0o600)
}

// issue signs a certificate for clients and, if hosts are given, servers.
func (a *authority) issue(cn string, groups []string, hosts ...string) (cert, key []byte, err error) {
	return a.issueUntil(a.cert.NotAfter, cn, groups, hosts...)
}

// clientPair issues a client certificate, ready for use.
func (a *authority) clientPair(until time.Time, cn string, groups []string) (tls.Certificate, error) {
	cert, key, err := a.issueUntil(until, cn, groups)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func (a *authority) issueUntil(until time.Time, cn string, groups []string, hosts ...string) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: cn, Organization: groups},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(k)
	return encode("CERTIFICATE", der), key, err
}

// files issues a certificate into NAME.crt and NAME.key.
func (a *authority) files(name, cn string, groups []string, hosts ...string) error {
	cert, key, err := a.issue(cn, groups, hosts...)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	return a.write(name, cert, key)
}

// kubeconfig writes credentials for one user of the API server.
func (a *authority) kubeconfig(path, server, cn string, groups ...string) error {
	cert, key, err := a.issue(cn, groups)
	if err != nil {
		return fmt.Errorf("credentials of %s: %w", cn, err)
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["lab"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem}
	c.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	c.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "user"}
	c.CurrentContext = "lab"
	return clientcmd.WriteToFile(*c, path)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, err
	}
	return encode("EC PRIVATE KEY", der), nil
}
