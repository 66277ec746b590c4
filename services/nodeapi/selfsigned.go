package nodeapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// selfSigned makes the node's own certificate. It remembers the last it made, which
// serves, and is offered to the disk again, while the disk does not take it.
type selfSigned struct {
	cert, key []byte
	// beat tells the watchdog that the keys are being made.
	beat func()
}

// get is the certificate in the kubelet's files. One that is there and good is
// kept; a new one is made a day before it ends, or when the clock or the name has
// left it. With an error there may be a certificate that is not on the disk.
func (m *selfSigned) get(certFile, keyFile string, conf *kubeconf.Config, now time.Time) (*tls.Certificate, error) {
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && usable(&pair, conf.Node.Name, now) {
		return &pair, nil
	}
	pair, err := tls.X509KeyPair(m.cert, m.key)
	if err != nil || !usable(&pair, conf.Node.Name, now) {
		if pair, err = m.make(conf); err != nil {
			return nil, fmt.Errorf("serving certificate: %w", err)
		}
	}
	if err := errors.Join(file.Replace(keyFile, m.key, 0o600), file.Replace(certFile, m.cert, 0o644)); err != nil {
		return &pair, fmt.Errorf("serving certificate not kept: %w", err)
	}
	return &pair, nil
}

func (m *selfSigned) make(conf *kubeconf.Config) (pair tls.Certificate, err error) {
	var ips []net.IP
	for _, text := range conf.Node.IPs {
		if ip := net.ParseIP(text); ip != nil {
			ips = append(ips, ip)
		}
	}
	// For want of processor time the keys may take minutes: to be ended and to begin
	// them anew would not be faster.
	beating(m.beat, relisten, func() {
		m.cert, m.key, err = cert.GenerateSelfSignedCertKey(conf.Node.Name, ips, nil)
	})
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(m.cert, m.key)
}

// beating does work, and beats each period until it is done.
func beating(beat func(), period time.Duration, work func()) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				beat()
			}
		}
	}()
	work()
}

// usable tells whether a certificate names this node, and will for a day.
func usable(pair *tls.Certificate, node string, now time.Time) bool {
	leaf := pair.Leaf
	return leaf.VerifyHostname(node) == nil && !now.Before(leaf.NotBefore) && now.Add(24*time.Hour).Before(leaf.NotAfter)
}
