// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/watch"
)

// servingPeriod is how often the server's files are read without a signal
// (kubelet: 1 m).
const servingPeriod = time.Minute

// serving reads the files of the node's server: nodeapi has no right to, for
// they may be root's alone.
type serving struct {
	inForce *configuration
	feed    *feed.Owner[*configv1.Serving]
	log     *slog.Logger
	wake    signal.Signal // the configuration may name other files
}

// watch publishes the files when they change, until ctx ends.
func (s *serving) watch(ctx context.Context) error {
	last := &configv1.Serving{}
	for ctx.Err() == nil {
		current, _ := s.inForce.get()
		files := servingFiles(current)
		round, end := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			done <- watch.Run(round, watch.Config{
				Paths: files, Period: servingPeriod, Log: s.log,
				Look: func() { last = s.publish(ctx, current, last) },
			})
		}()
		select {
		case <-ctx.Done():
		case <-s.wake:
		}
		end()
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

func servingFiles(c *kubeletconfig.Config) []string {
	return []string{c.Kubelet.Authentication.X509.ClientCAFile, c.Kubelet.TLSCertFile, c.Kubelet.TLSPrivateKeyFile}
}

func (s *serving) publish(ctx context.Context, c *kubeletconfig.Config, last *configv1.Serving) *configv1.Serving {
	next := readServing(c, last)
	for field, err := range map[string]string{"clientCAFile": next.GetClientCaError(), "tlsCertFile": next.GetCertificateError()} {
		if err != "" && !proto.Equal(next, last) {
			s.log.Error("file of the node's server", "field", field, service.KeyError, err)
		}
	}
	if _, err := s.feed.Set(ctx, nodeItem, next); err != nil {
		s.log.Error("files of the node's server not published", service.KeyError, err.Error())
	}
	s.feed.SetComplete(ctx, true)
	return next
}

// readServing reads the files a configuration names. One that is of no use
// leaves what it held before.
func readServing(c *kubeletconfig.Config, last *configv1.Serving) *configv1.Serving {
	k := &c.Kubelet
	next := &configv1.Serving{ClientCaFile: k.Authentication.X509.ClientCAFile, CertificateFile: k.TLSCertFile}
	if next.ClientCaFile != "" {
		data, err := readAuthority(next.ClientCaFile)
		if err != nil {
			next.ClientCaError = "authentication.x509.clientCAFile: " + err.Error()
			if last.GetClientCaFile() == next.GetClientCaFile() {
				data = last.GetClientCa()
			}
		}
		next.ClientCa = data
	}
	if next.CertificateFile != "" {
		certificate, key, err := readPair(k.TLSCertFile, k.TLSPrivateKeyFile)
		if err != nil {
			next.CertificateError = "tlsCertFile, tlsPrivateKeyFile: " + err.Error()
			if last.GetCertificateFile() == next.GetCertificateFile() {
				certificate, key = last.GetCertificate(), last.GetKey()
			}
		}
		next.Certificate, next.Key = certificate, key
	}
	return next
}

func readAuthority(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return data, err
}

func readPair(certFile, keyFile string) (certificate, key []byte, err error) {
	if certificate, err = os.ReadFile(certFile); err != nil {
		return nil, nil, err
	}
	if key, err = os.ReadFile(keyFile); err != nil {
		return nil, nil, err
	}
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		return nil, nil, err
	}
	return certificate, key, nil
}
