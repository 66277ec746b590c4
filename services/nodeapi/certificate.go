package nodeapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// servingCertificate is the one the configuration names, or one that nodeapi
// signs itself and keeps.
func (s *Service) servingCertificate(conf *kubeconf.Config) (tls.Certificate, error) {
	certFile, keyFile := conf.Kubelet.TLSCertFile, conf.Kubelet.TLSPrivateKeyFile
	if certFile != "" || keyFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return pair, fmt.Errorf("tlsCertFile, tlsPrivateKeyFile: %w", err)
		}
		return pair, nil
	}
	dir := s.kit.StateDir()
	certFile, keyFile = filepath.Join(dir, "serving.crt"), filepath.Join(dir, "serving.key")
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && usable(pair, conf.Node.Name, time.Now()) {
		return pair, nil
	}
	var ips []net.IP
	for _, text := range conf.Node.IPs {
		if ip := net.ParseIP(text); ip != nil {
			ips = append(ips, ip)
		}
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(conf.Node.Name, ips, nil)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("serving certificate: %w", err)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(keyFile, keyPEM, 0o600), os.WriteFile(certFile, certPEM, 0o644)); err != nil {
		return tls.Certificate{}, fmt.Errorf("serving certificate: %w", err)
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// usable tells whether a stored certificate still names this node and lasts
// another day.
func usable(pair tls.Certificate, node string, now time.Time) bool {
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	return err == nil && leaf.VerifyHostname(node) == nil && now.Add(24*time.Hour).Before(leaf.NotAfter)
}
