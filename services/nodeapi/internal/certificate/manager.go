// SPDX-License-Identifier: Apache-2.0

// Package certificate keeps the serving certificate that the configuration asks for: the
// one of tlsCertFile, one that the API server signs (serverTLSBootstrap), or one that the
// node signs itself.
//
// It owns the kubelet's files in --cert-dir, and a request under way with its key, which
// no other process sees. It promises that the former certificate is served until there is
// another one. It comes back with the files; one that a disk does not take is kept in
// memory.
package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
)

// Deps are what a Manager uses.
type Deps struct {
	Kit    *service.Kit
	Config configv1.ConfigServiceClient
	// Conf is the configuration, nil while it is not known.
	Conf func() *kubeletconfig.Config
	// Files are the configured files as config read them, nil while that is not known.
	Files func() *configv1.Serving
	Now   func() time.Time
	// Changed is called when the certificate or the problem with it is another one.
	Changed func()
}

// Manager keeps the certificate.
type Manager struct {
	*served
	deps      Deps
	beat      func()
	requested *requester
	own       *selfSigned
	wake      signal.Signal
}

// New makes a manager, which works while Run does.
func New(d Deps) (*Manager, error) {
	node, err := service.Replica(d.Kit, house.StatusNode, feed.Whole[*statusv1.NodeReport])
	if err != nil {
		return nil, err
	}
	beat := d.Kit.Heart("certificate", 2*time.Minute)
	served := newServed(d.Kit.Metrics, d.Now)
	m := &Manager{
		served: served, deps: d, beat: beat, own: &selfSigned{beat: beat}, wake: signal.New(),
		requested: &requester{
			config: d.Config, node: node, state: d.Kit.StateDir(),
			now: d.Now, metrics: served, log: d.Kit.Log,
		},
	}
	node.Watch(func([]string) { m.Look() })
	return m, nil
}

// Look wakes the manager: something that the certificate depends on may have changed.
func (m *Manager) Look() {
	m.wake.Send()
}

// Run works until the context ends.
func (m *Manager) Run(ctx context.Context) error {
	for {
		m.beat()
		wait := period
		if conf := m.deps.Conf(); conf != nil {
			var next *tls.Certificate
			var err error
			next, wait, err = m.next(ctx, conf)
			m.put(next, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-time.After(wait):
		}
	}
}

// put serves a certificate, if there is one.
func (m *Manager) put(next *tls.Certificate, err error) {
	log := m.deps.Kit.Log
	if was := m.Current(); next != nil && (was == nil || !was.Leaf.Equal(next.Leaf)) {
		m.current.Store(next)
		log.Info("serving certificate", "subject", next.Leaf.Subject.String(), "expires", next.Leaf.NotAfter)
		m.deps.Changed()
	}
	if fmt.Sprint(err) != fmt.Sprint(m.Problem()) {
		if err != nil {
			log.Warn("serving certificate", service.KeyError, err.Error())
		}
		m.problem.Store(&err)
		m.deps.Changed()
	}
}

// next is the certificate to serve, nil for the former one, and when to look again.
func (m *Manager) next(ctx context.Context, conf *kubeletconfig.Config) (*tls.Certificate, time.Duration, error) {
	certFile, keyFile, generated := conf.ServingCert()
	switch {
	case generated:
		dir := house.CertDir(filepath.Dir(certFile), house.NodeAPI)
		c, err := m.own.get(filepath.Join(dir, filepath.Base(certFile)), filepath.Join(dir, filepath.Base(keyFile)), conf, m.deps.Now())
		return c, period, err
	case certFile != "":
		c, err := configured(certFile, m.deps.Files())
		return c, period, err
	}
	return m.requested.step(ctx, conf)
}

// configured is the certificate of tlsCertFile and tlsPrivateKeyFile.
func configured(certFile string, files *configv1.Serving) (*tls.Certificate, error) {
	if files.GetCertificateFile() != certFile {
		return nil, fmt.Errorf("tlsCertFile, tlsPrivateKeyFile: %w", ErrWaiting)
	}
	var problem error
	if text := files.GetCertificateError(); text != "" {
		problem = errors.New(text)
	}
	if len(files.GetCertificate()) == 0 {
		return nil, problem
	}
	pair, err := tls.X509KeyPair(files.GetCertificate(), files.GetKey())
	if err != nil {
		return nil, fmt.Errorf("tlsCertFile, tlsPrivateKeyFile: %w", err)
	}
	return &pair, problem
}
