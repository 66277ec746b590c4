package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/prometheus/slis"

	"github.com/sextant-node/sextant/pkg/house"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

const (
	// helloTimeout bounds what one service may hold a health check up.
	helloTimeout = 2 * time.Second
	// lookPeriod is how often nodeapi looks whether its neighbours work, without
	// being asked.
	lookPeriod = 30 * time.Second
	// stallLimit is the least time the workers may stand still before healthz fails
	// (kubelet: twice syncFrequency, at least 5 minutes).
	stallLimit = 5 * time.Minute
)

// health registers /healthz with the kubelet's checks, and /livez and /readyz
// with one a service: livez fails for a service that does not answer, readyz also
// for one that says it cannot do its work. What the checks found is in
// /metrics/slis.
func (s *Service) health(mux *http.ServeMux) {
	check := func(name string, run func(context.Context) error) healthz.HealthChecker {
		return healthz.NamedCheck(name, func(r *http.Request) error { return run(r.Context()) })
	}
	healthz.InstallHandler(mux, healthz.PingHealthz, check("log", logWritable),
		check("syncloop", func(ctx context.Context) error { return s.moving(ctx, house.PodWorker, s.syncLimit()) }),
		check("device-plugin", func(ctx context.Context) error { return s.moving(ctx, house.Resource, stallLimit) }))
	live, ready := []healthz.HealthChecker{healthz.PingHealthz}, []healthz.HealthChecker{healthz.PingHealthz}
	for _, name := range house.Services() {
		if name == house.Bus && s.kit.Options.Bus != "" {
			continue // the node has none, or uses another
		}
		live = append(live, check(string(name), func(ctx context.Context) error { return s.alive(ctx, name) }))
		ready = append(ready, check(string(name), func(ctx context.Context) error { return s.works(ctx, name) }))
	}
	healthz.InstallLivezHandler(mux, live...)
	healthz.InstallReadyzHandler(mux, ready...)
	slis.SLIMetricsWithReset{}.Install(mux)
}

// logWritable fails when nobody reads what this process writes to its log, so
// that the next line would block.
func logWritable(context.Context) error {
	fds := []unix.PollFd{{Fd: int32(unix.Stderr), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(time.Second/time.Millisecond))
	if errors.Is(err, unix.EINTR) {
		return nil // it was not waiting for long
	}
	if err != nil || n == 0 {
		return errors.New("logging blocked")
	}
	return nil
}

func (s *Service) hello(ctx context.Context, name house.Service) (*nodev1.HelloResponse, error) {
	if name == house.NodeAPI {
		return s.kit.Hello(), nil
	}
	conn, err := s.kit.Dial(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	hello, err := nodev1.NewNodeServiceClient(conn).Hello(ctx, &nodev1.HelloRequest{Service: string(house.NodeAPI), Protocol: house.Protocol})
	if err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", name, err)
	}
	return hello, nil
}

func (s *Service) alive(ctx context.Context, name house.Service) error {
	_, err := s.hello(ctx, name)
	return err
}

func (s *Service) works(ctx context.Context, name house.Service) error {
	hello, err := s.hello(ctx, name)
	if err == nil && hello.GetHealth() != nodev1.Health_HEALTH_SERVING {
		err = fmt.Errorf("%s: %s", name, hello.GetHealthReason())
	}
	if err == nil {
		s.moved.saw(name, s.now())
	}
	return err
}

// moving fails when a service has not been seen at work for longer than limit: a
// restart is no ill health.
func (s *Service) moving(ctx context.Context, name house.Service, limit time.Duration) error {
	err := s.works(ctx, name)
	if err == nil {
		return nil
	}
	if still := s.now().Sub(s.moved.last(name)); still > limit {
		return fmt.Errorf("%w, for %s", err, still.Round(time.Second))
	}
	return nil
}

func (s *Service) syncLimit() time.Duration {
	if conf := s.current(); conf != nil {
		return max(stallLimit, 2*conf.Kubelet.SyncFrequency.Duration)
	}
	return stallLimit
}

// look keeps it known when the neighbours that healthz is about were last seen
// at work, also while nobody asks.
func (s *Service) look(ctx context.Context) error {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		for _, name := range []house.Service{house.PodWorker, house.Resource} {
			if err := s.works(ctx, name); err != nil {
				s.kit.Log.DebugContext(ctx, "neighbour not at work", "peer", string(name), "error", err.Error())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// sightings remember when each service was last seen at work.
type sightings struct {
	mu    sync.Mutex
	since time.Time // nobody was looked for before
	seen  map[house.Service]time.Time
}

func newSightings(now time.Time) *sightings {
	return &sightings{since: now, seen: map[house.Service]time.Time{}}
}

func (s *sightings) saw(name house.Service, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[name] = now
}

func (s *sightings) last(name house.Service) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.seen[name]; ok {
		return t
	}
	return s.since
}
