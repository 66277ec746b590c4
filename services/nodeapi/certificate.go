package nodeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/kubeconf"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// nodeItem is the one item of config.serving and of status.node.
const nodeItem = "node"

// errWaiting says that something is on its way.
var errWaiting = errors.New("not there yet")

// shown is the certificate callers are shown.
type shown struct {
	certificate atomic.Pointer[tls.Certificate]
	// problem is why it is not the one it should be, or nil.
	problem atomic.Pointer[error]
	wake    chan struct{} // capacity 1

	rotated     prometheus.Histogram
	renewErrors prometheus.Counter
}

func newShown(r prometheus.Registerer, now func() time.Time) *shown {
	const day = 24 * 60 * 60
	c := &shown{
		wake: make(chan struct{}, 1),
		rotated: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_certificate_manager_server_rotation_seconds",
			Help:    "How many seconds the former serving certificate lived when it was replaced.",
			Buckets: []float64{60, 3600, 4 * 3600, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 1440 * day},
		}),
		renewErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_server_expiration_renew_errors", Help: "Requests for a serving certificate that failed.",
		}),
	}
	r.MustRegister(c.rotated, c.renewErrors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_server_ttl_seconds",
		Help: "Seconds until the serving certificate expires; negative once it has, +Inf without one.",
	}, func() float64 {
		if now := now(); c.leaf() != nil {
			return math.Trunc(c.leaf().Leaf.NotAfter.Sub(now).Seconds())
		}
		return math.Inf(1)
	}))
	return c
}

func (c *shown) leaf() *tls.Certificate { return c.certificate.Load() }

// get is tls.Config's GetCertificate.
func (c *shown) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if have := c.leaf(); have != nil {
		return have, nil
	}
	return nil, errors.New("there is no serving certificate yet")
}

// trouble is what keeps the right certificate from being shown.
func (c *shown) trouble() error {
	if p := c.problem.Load(); p != nil {
		return *p
	}
	return nil
}

func (c *shown) look() { poke(c.wake) }

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// certificateLoop keeps the certificate that is shown the one the configuration
// asks for. What was good before is shown until there is another one.
func (s *Service) certificateLoop(ctx context.Context) error {
	beat := s.kit.Heart("certificate", 2*time.Minute)
	requested, own := &requester{s: s}, &selfSigned{beat: beat}
	for {
		beat()
		wait := relisten
		if conf := s.current(); conf != nil {
			var next *tls.Certificate
			var err error
			next, wait, err = s.nextCertificate(ctx, conf, requested, own)
			s.show(next, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-s.shown.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// show puts a certificate in force, if there is one.
func (s *Service) show(next *tls.Certificate, err error) {
	was, wasErr := s.shown.leaf(), s.shown.trouble()
	if next != nil && (was == nil || !was.Leaf.Equal(next.Leaf)) {
		s.shown.certificate.Store(next)
		s.kit.Log.Info("serving certificate", "subject", next.Leaf.Subject.String(), "expires", next.Leaf.NotAfter)
		poke(s.wake)
	}
	if fmt.Sprint(err) != fmt.Sprint(wasErr) {
		if err != nil {
			s.kit.Log.Warn("serving certificate", "error", err.Error())
		}
		s.shown.problem.Store(&err)
		poke(s.wake)
	}
}

// nextCertificate is the one to show by a configuration, with when to look
// again; nil leaves the one that is shown.
func (s *Service) nextCertificate(ctx context.Context, conf *kubeconf.Config, requested *requester, own *selfSigned) (*tls.Certificate, time.Duration, error) {
	certFile, keyFile, generated := conf.ServingCert()
	switch {
	case generated:
		c, err := own.get(certFile, keyFile, conf, s.now())
		return c, relisten, err
	case certFile != "":
		c, err := s.configured(certFile)
		return c, relisten, err
	}
	return requested.step(ctx, conf)
}

// configured is the one of tlsCertFile and tlsPrivateKeyFile, which config reads.
func (s *Service) configured(certFile string) (*tls.Certificate, error) {
	files, ok := s.serving.Get(nodeItem)
	if !ok || files.GetCertificateFile() != certFile {
		return nil, fmt.Errorf("tlsCertFile, tlsPrivateKeyFile: %w", errWaiting)
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

// clientCA is what clientCAFile holds, as config read it.
func clientCA(path string, files *configv1.Serving) ([]byte, error) {
	switch {
	case files.GetClientCaFile() != path:
		return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", errWaiting)
	case len(files.GetClientCa()) == 0:
		return nil, errors.New(files.GetClientCaError())
	}
	return files.GetClientCa(), nil
}
