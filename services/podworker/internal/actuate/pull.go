package actuate

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"golang.org/x/time/rate"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// pullQueue lets so many pulls run at a time, first come first served.
type pullQueue struct {
	mu      sync.Mutex
	running int
	waiting list.List // of chan struct{}
	limit   int       // 0: none
}

func newPullQueue() *pullQueue { return &pullQueue{} }

// pullsAtOnce is what the configuration allows; 0 for no limit.
func pullsAtOnce(cfg *kubeconf.Config) int {
	if value(cfg.Kubelet.SerializeImagePulls, true) {
		return 1
	}
	return int(value(cfg.Kubelet.MaxParallelImagePulls, 0))
}

// enter waits for a turn; leave must follow. The newest limit counts.
func (q *pullQueue) enter(ctx context.Context, limit int) error {
	q.mu.Lock()
	q.limit = limit
	turn := make(chan struct{})
	e := q.waiting.PushBack(turn)
	q.admit()
	q.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-turn: // it came at the same moment: pass it on
		q.running--
		q.admit()
	default:
		q.waiting.Remove(e)
	}
	return ctx.Err()
}

func (q *pullQueue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	q.admit()
}

func (q *pullQueue) admit() {
	for q.waiting.Len() > 0 && (q.limit == 0 || q.running < q.limit) {
		close(q.waiting.Remove(q.waiting.Front()).(chan struct{}))
		q.running++
	}
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
func (l *pullLimiter) allow(cfg *kubeconf.Config) error {
	qps, burst := value(cfg.Kubelet.RegistryPullQPS, 5), cfg.Kubelet.RegistryBurst
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
