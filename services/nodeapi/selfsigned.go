package nodeapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// selfSigned is the node's own certificate in the kubelet's files. One that is
// there and good is kept; a new one is made a day before it ends, or when the
// clock or the name has left it.
func selfSigned(certFile, keyFile string, conf *kubeconf.Config, now time.Time) (*tls.Certificate, error) {
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && usable(&pair, conf.Node.Name, now) {
		return &pair, nil
	}
	var ips []net.IP
	for _, text := range conf.Node.IPs {
		if ip := net.ParseIP(text); ip != nil {
			ips = append(ips, ip)
		}
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(conf.Node.Name, ips, nil)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	if err := errors.Join(replace(keyFile, keyPEM, 0o600), replace(certFile, certPEM, 0o644)); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	return &pair, err
}

// usable tells whether a certificate names this node, and will for a day.
func usable(pair *tls.Certificate, node string, now time.Time) bool {
	leaf := pair.Leaf
	return leaf.VerifyHostname(node) == nil && !now.Before(leaf.NotBefore) && now.Add(24*time.Hour).Before(leaf.NotAfter)
}

// replace writes a file whole.
func replace(path string, data []byte, mode os.FileMode) error {
	fresh := path + ".new"
	if err := os.WriteFile(fresh, data, mode); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
