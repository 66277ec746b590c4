// SPDX-License-Identifier: Apache-2.0

// Package listen opens the ports of the node API: it accepts connections, makes the TLS
// handshake, and serves HTTP within limits.
//
// It owns the listening sockets, inherited ones included. It promises that a port that
// stays configured is not touched, so that its streams go on; and that callers who are not
// identified hold a bounded part of the process: connections, handshakes, headers and
// requests are bounded for each, for one address and for all. Certified callers have limits
// of their own. After a restart it listens again; on inherited sockets callers have waited.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"

	"k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Ports are the open ports. It is not safe for concurrent use.
type Ports struct {
	deps      Deps
	inherited inherited
	open      []*openPort
}

// New opens nothing yet.
func New(d Deps) *Ports { return &Ports{deps: d, inherited: d.Sockets} }

// Set closes the ports that are not wanted and opens those that are not open, as far as it
// can. Inherited sockets of other addresses are shut for all processes that hold them.
func (p *Ports) Set(ctx context.Context, wanted []Port) error {
	keys, addresses := make([]string, len(wanted)), make([]string, len(wanted))
	for i, port := range wanted {
		keys[i], addresses[i] = port.key(), port.Address
	}
	p.open = slices.DeleteFunc(p.open, func(o *openPort) bool {
		gone := !slices.Contains(keys, o.key)
		if gone {
			o.close()
		}
		return gone
	})
	p.inherited.shut(addresses)
	var all []error
	for i, port := range wanted {
		if slices.ContainsFunc(p.open, func(o *openPort) bool { return o.key == keys[i] }) {
			continue
		}
		listener, err := p.listen(ctx, port.Address)
		if err != nil {
			all = append(all, fmt.Errorf("%s port: %w", port.Name, err))
			continue
		}
		opened := newOpenPort(port, listener, p.deps)
		go opened.serve()
		p.open = append(p.open, opened)
		p.deps.Log.Info("listening", "listener", port.Name, "address", port.Address)
	}
	return errors.Join(all...)
}

func (p *Ports) listen(ctx context.Context, address string) (net.Listener, error) {
	if inherited, err := p.inherited.listener(address); inherited != nil || err != nil {
		return inherited, err
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

// Close closes all ports.
func (p *Ports) Close() {
	for _, o := range p.open {
		o.close()
	}
}

// TLSConfig makes what the configuration says about TLS: versions, ciphers, key
// exchanges. A client certificate is requested, not required. HTTP/2 is offered, as by
// the kubelet; streams use HTTP/1.1.
func TLSConfig(k *kubeletv1beta1.KubeletConfiguration, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*tls.Config, error) {
	config := &tls.Config{
		ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: certificate,
	}
	var err error
	if v := k.TLSMinVersion; v != "" {
		if config.MinVersion, err = flag.TLSVersion(v); err != nil {
			return nil, fmt.Errorf("tlsMinVersion: %w", err)
		}
	}
	if suites := k.TLSCipherSuites; len(suites) > 0 {
		if config.CipherSuites, err = flag.TLSCipherSuites(suites); err != nil {
			return nil, fmt.Errorf("tlsCipherSuites: %w", err)
		}
	}
	if config.CurvePreferences, err = flag.TLSCurvePreferences(k.TLSCurvePreferences); err != nil {
		return nil, fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	if config.MinVersion < tls.VersionTLS13 && config.CipherSuites != nil && !slices.ContainsFunc(config.CipherSuites, forHTTP2) {
		config.NextProtos = []string{"http/1.1"}
	}
	return config, nil
}

// forHTTP2 reports whether a cipher is one that HTTP/2 over TLS 1.2 needs (RFC 9113, 9.2.2).
func forHTTP2(suite uint16) bool {
	return suite == tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 || suite == tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
}
