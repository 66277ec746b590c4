package nodeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"k8s.io/component-base/cli/flag"

	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
)

// Timeouts of the kubelet's own servers.
const (
	idleTimeout   = 90 * time.Second
	streamTimeout = 4 * time.Hour
	headerTimeout = 32 * time.Second
	maxHeader     = 1 << 20
	relisten      = 5 * time.Second
)

// listener is one port the node answers on.
type listener struct {
	name    string
	address string
	tls     *tls.Config
	handler http.Handler
}

// listenLoop keeps the configured ports open. A port that cannot be had is
// tried again; a configuration that changes them opens them anew.
func (s *Service) listenLoop(ctx context.Context) error {
	closeAll := func() {}
	defer func() { closeAll() }()
	opened := ""
	retry := time.NewTicker(relisten)
	defer retry.Stop()
	for {
		if conf := s.current(); conf != nil {
			listeners, err := s.listeners(conf)
			want := fmt.Sprint(addresses(listeners), conf.Kubelet.TLSCertFile, conf.Kubelet.TLSMinVersion, conf.Kubelet.TLSCipherSuites)
			switch {
			case err != nil:
				s.kit.Failing(err.Error())
			case want != opened:
				closeAll()
				serving, stop := context.WithCancel(ctx)
				closeAll = stop
				if err := s.open(serving, listeners); err != nil {
					s.kit.Failing(err.Error())
					break
				}
				opened = want
				s.kit.Serving()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-retry.C:
		}
	}
}

func addresses(listeners []listener) []string {
	var all []string
	for _, l := range listeners {
		all = append(all, l.name+"="+l.address)
	}
	return all
}

// listeners are the ports a configuration asks for, with the policy it sets.
func (s *Service) listeners(conf *kubeconf.Config) ([]listener, error) {
	policy, err := policyOf(conf, s.cfg.NodeName)
	if err != nil {
		return nil, err
	}
	s.policy.Store(policy)
	k := conf.Kubelet
	var all []listener
	if k.HealthzPort != nil && *k.HealthzPort > 0 {
		all = append(all, listener{name: "healthz", address: join(k.HealthzBindAddress, *k.HealthzPort), handler: s.healthzHandler()})
	}
	if k.EnableServer != nil && !*k.EnableServer {
		return all, nil
	}
	if k.ReadOnlyPort > 0 {
		all = append(all, listener{name: "read-only", address: join(k.Address, k.ReadOnlyPort), handler: s.readOnlyHandler()})
	}
	if k.Port > 0 {
		config, err := s.tlsConfig(conf)
		if err != nil {
			return nil, err
		}
		all = append(all, listener{name: "https", address: join(k.Address, k.Port), tls: config, handler: s.authenticatedHandler()})
	}
	return all, nil
}

func join(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

func policyOf(conf *kubeconf.Config, node string) (*auth.Policy, error) {
	a, z := conf.Kubelet.Authentication, conf.Kubelet.Authorization
	is := func(b *bool) bool { return b != nil && *b }
	policy := &auth.Policy{
		Tokens: is(a.Webhook.Enabled), TokenTTL: a.Webhook.CacheTTL.Duration,
		Anonymous:   is(a.Anonymous.Enabled),
		AlwaysAllow: z.Mode == "AlwaysAllow",
		AllowedTTL:  z.Webhook.CacheAuthorizedTTL.Duration, ForbiddenTTL: z.Webhook.CacheUnauthorizedTTL.Duration,
		Node: node,
	}
	if a.X509.ClientCAFile != "" {
		data, err := os.ReadFile(a.X509.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
		}
		policy.ClientCAs = x509.NewCertPool()
		if !policy.ClientCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %s holds no certificate", a.X509.ClientCAFile)
		}
	}
	return policy, nil
}

// tlsConfig is the kubelet's: a client certificate is asked for, not required.
func (s *Service) tlsConfig(conf *kubeconf.Config) (*tls.Config, error) {
	cert, err := s.servingCertificate(conf)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	if v := conf.Kubelet.TLSMinVersion; v != "" {
		if config.MinVersion, err = flag.TLSVersion(v); err != nil {
			return nil, fmt.Errorf("tlsMinVersion: %w", err)
		}
	}
	if suites := conf.Kubelet.TLSCipherSuites; len(suites) > 0 {
		if config.CipherSuites, err = flag.TLSCipherSuites(suites); err != nil {
			return nil, fmt.Errorf("tlsCipherSuites: %w", err)
		}
	}
	return config, nil
}

// open listens on all of them or on none.
func (s *Service) open(ctx context.Context, listeners []listener) error {
	var opened []net.Listener
	for _, l := range listeners {
		n, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
		if err != nil {
			for _, o := range opened {
				err = errors.Join(err, o.Close())
			}
			return fmt.Errorf("%s port: %w", l.name, err)
		}
		if l.tls != nil {
			n = tls.NewListener(n, l.tls)
		}
		opened = append(opened, n)
	}
	for i, l := range listeners {
		server := &http.Server{
			Handler: l.handler, IdleTimeout: idleTimeout, ReadTimeout: streamTimeout, WriteTimeout: streamTimeout,
			ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader,
			ErrorLog: nil, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // streams need HTTP/1.1
		}
		context.AfterFunc(ctx, func() {
			if err := server.Close(); err != nil {
				s.kit.Log.Debug("close", "listener", l.name, "error", err.Error())
			}
		})
		go func() {
			if err := server.Serve(opened[i]); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.kit.Log.Error("listener ended", "listener", l.name, "error", err.Error())
			}
		}()
		s.kit.Log.Info("listening", "listener", l.name, "address", l.address)
	}
	return nil
}
