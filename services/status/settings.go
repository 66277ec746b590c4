// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/status/internal/api"
	"github.com/sextant-node/sextant/services/status/internal/events"
)

// Config of the service: what it must know before config answers.
type Config struct {
	// NodeName is the name of the Node object; if empty it is the configuration's.
	NodeName string
}

// settings hold the configuration in force: the last one config served, in this
// process or, from the journal, in an earlier one.
type settings struct {
	cfg Config

	mu         sync.Mutex
	current    *kubeletconfig.Config
	credential string
}

func (s *settings) set(c *kubeletconfig.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = c
}

// get is the configuration, nil while there is none.
func (s *settings) get() *kubeletconfig.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// node is the node's name, empty while it is not known.
func (s *settings) node() string {
	if s.cfg.NodeName != "" {
		return s.cfg.NodeName
	}
	if c := s.get(); c != nil {
		return c.Node.Name
	}
	return ""
}

// standalone reports whether the configuration names no API server. While there is no
// configuration it is not known.
func (s *settings) standalone() bool {
	c := s.get()
	return c != nil && c.Node.KubeConfig == ""
}

// recording is what the recorder does with events now (events.Deps).
func (s *settings) recording() (string, events.Mode) {
	switch name := s.node(); {
	case s.get() == nil || name == "":
		return "", events.Wait
	case s.standalone():
		return name, events.Discard
	default:
		return name, events.Record
	}
}

// setCredential keeps the credential (a kubeconfig), empty for none.
func (s *settings) setCredential(kubeconfig string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credential = kubeconfig
}

// api is what clients are made of now.
func (s *settings) api() api.Config {
	c := s.get()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := api.Config{Kubeconfig: s.credential, UserAgent: "sextant-status/" + service.Version}
	if c != nil {
		out.Standalone = c.Node.KubeConfig == ""
		out.ContentType, out.Lease = c.Kubelet.ContentType, leaseDuration(c)
	}
	return out
}

// leaseDuration is nodeLeaseDurationSeconds; 40 s while nothing is known.
func leaseDuration(c *kubeletconfig.Config) time.Duration {
	if c != nil && c.Kubelet.NodeLeaseDurationSeconds > 0 {
		return pod.Seconds(int64(c.Kubelet.NodeLeaseDurationSeconds))
	}
	return 40 * time.Second
}

// limit is a rate limit that can be replaced.
type limit struct {
	mu      sync.Mutex
	qps     float32
	burst   int
	limiter flowcontrol.RateLimiter
}

// set replaces the limit if it differs. No rate (0 or less) is no limit.
func (l *limit) set(qps float32, burst int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limiter != nil && l.qps == qps && l.burst == burst {
		return
	}
	l.qps, l.burst = qps, burst
	if qps <= 0 {
		l.limiter = flowcontrol.NewFakeAlwaysRateLimiter()
		return
	}
	l.limiter = flowcontrol.NewTokenBucketRateLimiter(qps, max(burst, 1))
}

// Wait blocks until one more write is allowed.
func (l *limit) Wait(ctx context.Context) error {
	l.mu.Lock()
	limiter := l.limiter
	l.mu.Unlock()
	if limiter == nil {
		return nil
	}
	return limiter.Wait(ctx)
}

// apiRate is kubeAPIQPS and kubeAPIBurst; 0 is client-go's default, as for the kubelet.
func apiRate(c *kubeletconfig.Config) (float32, int) {
	qps, burst := float32(50), int(c.Kubelet.KubeAPIBurst)
	if c.Kubelet.KubeAPIQPS != nil {
		qps = float32(*c.Kubelet.KubeAPIQPS)
	}
	return cmp.Or(qps, rest.DefaultQPS), cmp.Or(burst, 100)
}

// eventRate is eventRecordQPS and eventBurst; 0 is no limit.
func eventRate(c *kubeletconfig.Config) (float32, int) {
	qps, burst := float32(50), int(c.Kubelet.EventBurst)
	if c.Kubelet.EventRecordQPS != nil {
		qps = float32(*c.Kubelet.EventRecordQPS)
	}
	return qps, cmp.Or(burst, 100)
}
