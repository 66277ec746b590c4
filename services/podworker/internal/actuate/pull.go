package actuate

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// turns says how many pulls may run at a time.
type turns struct {
	limit int // 0: no limit
	// patience lets one more begin each time it has passed without a pull having
	// begun; 0: never.
	patience time.Duration
}

// lending is the patience of a queue that nobody asked to be strict.
const lending = time.Second

// turnsOf reads the configuration. One at a time is the kubelet's default, and
// with it one image that will not come holds up every other on the node. So
// where nobody set serializeImagePulls pulls still begin one by one, but none
// waits for a slow one longer than a second; set to true it is kept to the
// letter.
func turnsOf(cfg *kubeconf.Config) turns {
	switch {
	case !value(cfg.Kubelet.SerializeImagePulls, true):
		return turns{limit: int(value(cfg.Kubelet.MaxParallelImagePulls, 0))}
	case cfg.Origins.Of("serializeImagePulls") == (kubeconf.Source{}):
		return turns{limit: 1, patience: lending}
	}
	return turns{limit: 1}
}

// pullQueue has pulls wait for their turn, first come first served.
type pullQueue struct {
	clock clock.WithDelayedExecution

	mu      sync.Mutex
	turns   turns
	running int
	last    time.Time // when a pull began
	waiting list.List // of chan struct{}
	lender  clock.Timer
}

func newPullQueue(c clock.WithDelayedExecution) *pullQueue { return &pullQueue{clock: c} }

// enter waits for a turn; leave must follow. The newest rules count.
func (q *pullQueue) enter(ctx context.Context, rules turns) error {
	q.mu.Lock()
	q.turns = rules
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

// admit lets begin whoever may, and comes back when the next one may for having
// waited.
func (q *pullQueue) admit() {
	for q.waiting.Len() > 0 && q.free() {
		close(q.waiting.Remove(q.waiting.Front()).(chan struct{}))
		q.running++
		q.last = q.clock.Now()
	}
	if q.waiting.Len() == 0 || q.turns.patience == 0 || q.lender != nil {
		return
	}
	// In a goroutine: a stepped clock calls back while it is held.
	q.lender = q.clock.AfterFunc(q.turns.patience-q.clock.Since(q.last), func() { go q.lend() })
}

func (q *pullQueue) lend() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lender = nil
	q.admit()
}

func (q *pullQueue) free() bool {
	return q.turns.limit == 0 || q.running < q.turns.limit ||
		q.turns.patience > 0 && q.clock.Since(q.last) >= q.turns.patience
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
