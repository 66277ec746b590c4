// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/podworker/internal/queue"
)

// lending is how long a slow pull holds up the next one where serializeImagePulls is unset.
const lending = time.Second

// turnsOf reads the configuration. One at a time is the kubelet's default, and
// with it one image that will not come holds up every other on the node. So
// where serializeImagePulls is unset pulls still begin one by one, but none
// waits for a slow one longer than a second; set to true it is kept to the
// letter.
func turnsOf(cfg *kubeletconfig.Config) queue.Rules {
	switch {
	case !ptr.Deref(cfg.Kubelet.SerializeImagePulls, true):
		return queue.Rules{Limit: int(ptr.Deref(cfg.Kubelet.MaxParallelImagePulls, 0))}
	case cfg.Origins.Of("serializeImagePulls") == (kubeletconfig.Source{}):
		return queue.Rules{Limit: 1, Patience: lending}
	}
	return queue.Rules{Limit: 1}
}

// errPullQPS is worded as the kubelet words it.
var errPullQPS = errors.New("pull QPS exceeded")

// pullLimiter is registryPullQPS and registryBurst.
type pullLimiter struct {
	mu      sync.Mutex
	qps     int32
	burst   int32
	limiter *rate.Limiter
}

// allow refuses a pull that comes too soon.
func (l *pullLimiter) allow(cfg *kubeletconfig.Config) error {
	qps, burst := ptr.Deref(cfg.Kubelet.RegistryPullQPS, 5), cfg.Kubelet.RegistryBurst
	if qps <= 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limiter == nil || l.qps != qps || l.burst != burst {
		l.qps, l.burst, l.limiter = qps, burst, rate.NewLimiter(rate.Limit(qps), int(burst))
	}
	if !l.limiter.Allow() {
		return errPullQPS
	}
	return nil
}
