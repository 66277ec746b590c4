// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// selfSigned makes certificates that the node signs itself. While the disk takes no
// writes, the last one is served from memory, and written again at each get.
type selfSigned struct {
	cert, key []byte // PEM
	// read is what was read last of the files, and the pair in it.
	read struct {
		cert, key []byte
		pair      tls.Certificate
	}
	// beat is the watchdog's.
	beat func()
}

// get is the certificate in the kubelet's files. A new one is made a day before it
// expires, and when it does not fit the clock or the node's name. With an error there may
// be a certificate that is not in the files.
func (m *selfSigned) get(certFile, keyFile string, conf *kubeletconfig.Config, now time.Time) (*tls.Certificate, error) {
	if pair, err := m.load(certFile, keyFile); err == nil && usable(pair, conf.Node.Name, now) {
		return pair, nil
	}
	pair, err := tls.X509KeyPair(m.cert, m.key)
	if err != nil || !usable(&pair, conf.Node.Name, now) {
		if pair, err = m.make(conf); err != nil {
			return nil, fmt.Errorf("serving certificate: %w", err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(keyFile), 0o700), file.Replace(keyFile, m.key, 0o600), file.Replace(certFile, m.cert, 0o644)); err != nil {
		return &pair, fmt.Errorf("serving certificate not kept: %w", err)
	}
	return &pair, nil
}

// load reads the files. A pair that they had before is not decoded again: that takes a
// millisecond, for each look.
func (m *selfSigned) load(certFile, keyFile string) (*tls.Certificate, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(certPEM, m.read.cert) || !bytes.Equal(keyPEM, m.read.key) {
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil, err
		}
		m.read.cert, m.read.key, m.read.pair = certPEM, keyPEM, pair
	}
	return new(m.read.pair), nil
}

func (m *selfSigned) make(conf *kubeletconfig.Config) (pair tls.Certificate, err error) {
	var ips []net.IP
	for _, text := range conf.Node.IPs {
		if ip := net.ParseIP(text); ip != nil {
			ips = append(ips, ip)
		}
	}
	// On a starved machine the keys take minutes; a restart would not make them faster.
	beating(m.beat, period, func() {
		m.cert, m.key, err = cert.GenerateSelfSignedCertKey(conf.Node.Name, ips, nil)
	})
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(m.cert, m.key)
}

// beating does work, and calls beat in each period until it is done.
func beating(beat func(), period time.Duration, work func()) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(period):
				beat()
			}
		}
	}()
	work()
}

// usable reports whether a certificate is this node's, and valid now and for a day.
func usable(pair *tls.Certificate, node string, now time.Time) bool {
	leaf := pair.Leaf
	return leaf.VerifyHostname(node) == nil && !now.Before(leaf.NotBefore) && now.Add(24*time.Hour).Before(leaf.NotAfter)
}
