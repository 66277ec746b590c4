// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/tls"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/metric"
)

// period is how often files and clock are looked at, and what failed is tried again.
const period = 5 * time.Second

// ErrWaiting says that something has not arrived yet.
var ErrWaiting = errors.New("not there yet")

// served is the certificate that is served, with its metrics.
type served struct {
	current atomic.Pointer[tls.Certificate]
	// problem is why it is not the one it should be, or nil.
	problem atomic.Pointer[error]

	rotated     prometheus.Histogram
	renewErrors prometheus.Counter
}

func newServed(r prometheus.Registerer, now func() time.Time) *served {
	const day = 24 * 60 * 60
	to := metric.In(r)
	c := &served{
		rotated: to.Histogram("kubelet_certificate_manager_server_rotation_seconds", "How many seconds the former serving certificate lived when it was replaced.",
			[]float64{60, 3600, 4 * 3600, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 1440 * day}),
		renewErrors: to.Counter("kubelet_server_expiration_renew_errors", "Requests for a serving certificate that failed."),
	}
	to.Measured("kubelet_certificate_manager_server_ttl_seconds", "Seconds until the serving certificate expires; negative once it has, +Inf without one.", func() float64 {
		if have := c.Current(); have != nil {
			return math.Trunc(have.Leaf.NotAfter.Sub(now()).Seconds())
		}
		return math.Inf(1)
	})
	return c
}

// Current is the certificate that is served, nil before there is one.
func (c *served) Current() *tls.Certificate { return c.current.Load() }

// Get is GetCertificate of a tls.Config.
func (c *served) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if have := c.Current(); have != nil {
		return have, nil
	}
	return nil, errors.New("there is no serving certificate yet")
}

// Problem is why the certificate that is served is not the one it should be, or nil.
func (c *served) Problem() error {
	if p := c.problem.Load(); p != nil {
		return *p
	}
	return nil
}
