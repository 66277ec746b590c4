package status

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// settings hold the configuration in force: the last one config served, in this
// process or, from the journal, in an earlier one.
type settings struct {
	cfg Config

	mu      sync.Mutex
	current *kubeconf.Config
}

func (s *settings) set(c *kubeconf.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = c
}

// get is the configuration, nil while there is none.
func (s *settings) get() *kubeconf.Config {
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

// kubeconfig is the path of the credentials, empty for none.
func (s *settings) kubeconfig() string {
	if s.cfg.Kubeconfig != "" {
		return s.cfg.Kubeconfig
	}
	if c := s.get(); c != nil {
		return c.Node.KubeConfig
	}
	return ""
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
func apiRate(c *kubeconf.Config) (float32, int) {
	qps, burst := float32(50), int(c.Kubelet.KubeAPIBurst)
	if c.Kubelet.KubeAPIQPS != nil {
		qps = float32(*c.Kubelet.KubeAPIQPS)
	}
	if qps == 0 {
		qps = rest.DefaultQPS
	}
	if burst == 0 {
		burst = 100
	}
	return qps, burst
}

// eventRate is eventRecordQPS and eventBurst; 0 is no limit.
func eventRate(c *kubeconf.Config) (float32, int) {
	qps, burst := float32(50), int(c.Kubelet.EventBurst)
	if c.Kubelet.EventRecordQPS != nil {
		qps = float32(*c.Kubelet.EventRecordQPS)
	}
	if burst == 0 {
		burst = 100
	}
	return qps, burst
}
