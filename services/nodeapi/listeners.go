package nodeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// Timeouts of the kubelet's own servers.
const (
	idleTimeout   = 90 * time.Second
	streamTimeout = 4 * time.Hour
	headerTimeout = 32 * time.Second
	maxHeader     = 1 << 20
)

// listener is one port the node answers on. Listeners with the same key are the
// same.
type listener struct {
	name, address, key string
	tls                *tls.Config
	handler            http.Handler
	// dropped is told of each connection that was closed because too many waited.
	dropped func()
}

// listeners are the ports a configuration asks for.
func (s *Service) listeners(conf *kubeconf.Config) ([]listener, error) {
	k := conf.Kubelet
	var all []listener
	add := func(l listener) {
		l.key = l.name + "=" + l.address + l.key
		l.dropped = s.requests.dropped.Inc
		all = append(all, l)
	}
	if k.HealthzPort != nil && *k.HealthzPort > 0 {
		add(listener{name: "healthz", address: join(k.HealthzBindAddress, *k.HealthzPort), handler: s.healthzHandler()})
	}
	if k.EnableServer != nil && !*k.EnableServer {
		return all, nil
	}
	if k.ReadOnlyPort > 0 {
		add(listener{name: "read-only", address: join(k.Address, k.ReadOnlyPort), handler: s.readOnlyHandler()})
	}
	if k.Port > 0 {
		config, err := s.tlsConfig(conf)
		if err != nil {
			return nil, err
		}
		parameters := fmt.Sprint(config.MinVersion, config.CipherSuites, config.CurvePreferences)
		add(listener{name: "https", address: join(k.Address, k.Port), key: parameters, tls: config, handler: s.authenticatedHandler()})
	}
	return all, nil
}

func join(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// tlsConfig is the kubelet's: a client certificate is asked for, not required.
// The certificate shown is always the newest one, without a new listener.
func (s *Service) tlsConfig(conf *kubeconf.Config) (*tls.Config, error) {
	// As in the kubelet, a certificate that was asked for is not waited for.
	if bootstrap := conf.Kubelet.ServerTLSBootstrap && conf.Kubelet.TLSCertFile == ""; s.shown.leaf() == nil && !bootstrap {
		return nil, fmt.Errorf("serving certificate: %w", errWaiting)
	}
	config, err := tlsParameters(&conf.Kubelet)
	if err != nil {
		return nil, err
	}
	config.GetCertificate = s.shown.get
	return config, nil
}

// ports are the open listeners.
type ports struct {
	open      []openPort
	inherited *inherited
}

type openPort struct {
	key    string
	server *http.Server
}

// become closes what is no longer wanted and opens what is not open. Those that
// stay are not touched: streams go on.
func (p *ports) become(ctx context.Context, log *slog.Logger, wanted []listener) error {
	p.open = slices.DeleteFunc(p.open, func(o openPort) bool {
		gone := !slices.ContainsFunc(wanted, func(l listener) bool { return l.key == o.key })
		if gone {
			_ = o.server.Close() // connections that are cut off have nobody to tell
		}
		return gone
	})
	addresses := make([]string, len(wanted))
	for i, l := range wanted {
		addresses[i] = l.address
	}
	p.inherited.giveUp(addresses)
	var all []error
	for _, l := range wanted {
		if slices.ContainsFunc(p.open, func(o openPort) bool { return l.key == o.key }) {
			continue
		}
		server, err := l.listen(ctx, log, p.inherited)
		if err != nil {
			all = append(all, fmt.Errorf("%s port: %w", l.name, err))
			continue
		}
		p.open = append(p.open, openPort{l.key, server})
		log.Info("listening", "listener", l.name, "address", l.address)
	}
	return errors.Join(all...)
}

func (p *ports) close() {
	for _, o := range p.open {
		_ = o.server.Close() // the process ends
	}
}

func (l listener) listen(ctx context.Context, log *slog.Logger, sockets *inherited) (*http.Server, error) {
	n, had, err := sockets.listener(l.address)
	if !had && err == nil {
		n, err = (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
	}
	if err != nil {
		return nil, err
	}
	if l.tls != nil {
		n = tls.NewListener(n, l.tls)
	}
	people := newCrowd(waitingLimit(), l.dropped)
	server := &http.Server{
		Handler: people.served(l.handler), ConnContext: people.arrive, ConnState: people.changed,
		IdleTimeout: idleTimeout, ReadTimeout: streamTimeout, WriteTimeout: streamTimeout,
		ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := server.Serve(n); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("listener ended", "listener", l.name, "error", err.Error())
		}
	}()
	return server, nil
}
