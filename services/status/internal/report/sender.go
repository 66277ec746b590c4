// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/status/internal/plan"
)

// API is what the sender asks of the API server. There is no reading in it.
type API interface {
	// PatchStatus patches the status subresource (strategic merge).
	PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error)
	// DeletePod deletes with grace 0 and the UID as precondition.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
	CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error)
}

// Limiter bounds the rate of writes (kubeAPIQPS, kubeAPIBurst).
type Limiter interface {
	Wait(ctx context.Context) error
}

// SenderConfig is how the sender works.
type SenderConfig struct {
	// Parallel writes; 16 when zero.
	Parallel int
	// Timeout of one write; 15 s when zero.
	Timeout time.Duration
}

// SenderDeps is what the sender works with.
type SenderDeps struct {
	Desk *Desk
	API  API
	// Limiter is asked before each choice, so that the most urgent write goes when
	// there is room for one.
	Limiter Limiter
	// Synced is called with how long a status took from being due to being accepted.
	Synced func(d time.Duration)
	Log    *slog.Logger
}

// Sender carries what is on the desk to the API server.
type Sender struct {
	cfg  SenderConfig
	deps SenderDeps

	mu       sync.Mutex
	inFlight int
	tries    int       // since the API server was last reached; 0: it is there
	pause    time.Time // nothing is sent before
	reached  time.Time // the last answer
}

// Back-off of everything while the API server does not answer: one request at a time,
// and another beside one that takes longer than the longest back-off. That is also what
// the mirror of a static pod, and every status, may be late after its return.
var absences = backoff.Doubling{Least: 100 * time.Millisecond, Most: 3 * time.Second}

// NewSender makes a sender; Run works.
func NewSender(cfg SenderConfig, deps SenderDeps) *Sender {
	cfg.Parallel = cmp.Or(cfg.Parallel, 16)
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Second)
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	return &Sender{cfg: cfg, deps: deps}
}

// Run sends until ctx ends. Writes under way then are abandoned: they are found
// again at the next start.
func (s *Sender) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if ctx.Err() != nil {
			return nil
		}
		wait, room := s.room()
		if room {
			var ok bool
			if ok, wait = s.step(ctx, &group); ok {
				continue
			}
		}
		if wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.deps.Desk.wake:
		}
	}
}

// room reports whether one more write may start, or when to ask again (0: when
// something changes).
func (s *Sender) room() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries > 0 {
		if wait := time.Until(s.pause); wait > 0 {
			return wait, false
		}
	}
	return 0, s.inFlight < s.cfg.Parallel
}

// step starts one write, if there is one.
func (s *Sender) step(ctx context.Context, group *sync.WaitGroup) (bool, time.Duration) {
	if wait, due := s.deps.Desk.due(); !due {
		return false, wait
	}
	if err := s.deps.Limiter.Wait(ctx); err != nil {
		return false, absences.Least
	}
	s.mu.Lock()
	away := s.tries > 0
	s.mu.Unlock()
	job, ok, wait := s.deps.Desk.Take(away)
	if !ok {
		return false, wait
	}
	s.mu.Lock()
	s.inFlight++
	s.pause = time.Now().Add(absences.Most)
	s.mu.Unlock()
	group.Go(func() { s.send(ctx, job) })
	return true, 0
}

func (s *Sender) send(ctx context.Context, job Job) {
	requestCtx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	object, err := s.write(requestCtx, job.Action)
	outcome := Judge(job.Action.Kind, err)

	s.mu.Lock()
	s.inFlight--
	switch {
	case outcome != Unreachable:
		if s.tries > 0 {
			s.deps.Log.Info("API server is back", "tries", s.tries)
		}
		s.tries, s.reached = 0, time.Now()
	case s.reached.After(job.Asked):
		outcome = Troubled // others are answered
	default:
		if s.tries == 0 && err != nil && ctx.Err() == nil {
			s.deps.Log.Warn("API server is away: statuses are kept", service.KeyError, err.Error())
		}
		s.tries++
		s.pause = time.Now().Add(absences.After(s.tries))
	}
	s.mu.Unlock()

	if (outcome == Refused || outcome == Troubled) && err != nil {
		s.deps.Log.Warn("write not accepted", "outcome", string(outcome), "kind", string(job.Action.Kind), service.KeyPod,
			job.Action.Namespace+"/"+job.Action.Name, service.KeyUID, string(job.Action.UID), service.KeyError, err.Error())
	}
	if outcome == Accepted && job.Action.Kind == plan.Patch && s.deps.Synced != nil {
		s.deps.Synced(time.Since(job.Since))
	}
	s.deps.Desk.Done(job, object, outcome, err)
}

func (s *Sender) write(ctx context.Context, a plan.Action) (*plan.Object, error) {
	if err := fault.Hit(ctx, "status.write"); err != nil {
		return nil, err
	}
	switch a.Kind {
	case plan.Patch:
		body, err := podstatus.Patch(a.UID, a.Was, a.Status)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error()) // of this pod's alone
		}
		p, err := s.deps.API.PatchStatus(ctx, a.Namespace, a.Name, body)
		if err != nil {
			return nil, err
		}
		return Apart(p), nil
	case plan.CreateMirror:
		p, err := s.deps.API.CreatePod(ctx, a.Pod)
		if err != nil {
			return nil, err
		}
		return Apart(p), nil
	default:
		return nil, s.deps.API.DeletePod(ctx, a.Namespace, a.Name, a.UID)
	}
}
