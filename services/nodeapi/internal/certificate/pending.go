// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/services/nodeapi/internal/serving"
)

// pending is a request under way. It is kept in a file, so that it goes on after a restart.
type pending struct {
	serving.Request
	key, csr []byte // PEM
}

func newPending(node string, names serving.Names, now time.Time) (*pending, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: names.DNS,
	}
	for _, ip := range names.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	csr, err := cert.MakeCSRFromTemplate(key, template)
	if err != nil {
		return nil, err
	}
	return &pending{Request: serving.Request{Names: names, Since: now}, key: keyPEM, csr: csr}, nil
}

// keep writes the request to a file.
func (p *pending) keep(path string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), file.Replace(path, slices.Concat(p.key, p.csr), 0o600))
}

// restore reads the request that a former process kept; nil if none can go on.
func restore(path string) *pending {
	data, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	key, rest := pem.Decode(data)
	block, _ := pem.Decode(rest)
	if err != nil || statErr != nil || key == nil || block == nil {
		return nil
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil
	}
	return &pending{
		Request: serving.Request{Names: namesIn(csr.DNSNames, csr.IPAddresses), Since: info.ModTime()},
		key:     pem.EncodeToMemory(key), csr: pem.EncodeToMemory(block),
	}
}

// namesIn are the names in a certificate or a request.
func namesIn(dns []string, ips []net.IP) serving.Names {
	n := serving.Names{DNS: dns}
	for _, ip := range ips {
		n.IPs = append(n.IPs, ip.String())
	}
	return n
}
