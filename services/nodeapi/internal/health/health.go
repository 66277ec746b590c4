// SPDX-License-Identifier: Apache-2.0

// Package health checks the services of the node.
//
// It owns the time at which each service was last seen at work, which after a restart is
// that of the restart. It promises the kubelet's checks on /healthz, that a restart of a
// service is not ill health, and that the local port is not well before the node's parts
// have begun.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/prometheus/slis"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

const (
	// helloTimeout bounds how long a check waits for one service.
	helloTimeout = 2 * time.Second
	// lookPeriod is how often services are checked when no caller does.
	lookPeriod = 30 * time.Second
	// stallLimit is how long the workers may stand still before healthz fails (kubelet:
	// twice syncFrequency, at least 5 minutes).
	stallLimit = 5 * time.Minute
)

// Checker is safe for concurrent use.
type Checker struct {
	kit  *service.Kit
	conf func() *kubeletconfig.Config
	now  func() time.Time
	seen sync.Map // house.Service to the time.Time it was last seen at work
	// started is set when podworker has answered and resource has worked since this
	// process began.
	started atomic.Bool
}

// New makes a checker. conf is the configuration, nil while it is not known.
func New(kit *service.Kit, conf func() *kubeletconfig.Config, now func() time.Time) *Checker {
	c := &Checker{kit: kit, conf: conf, now: now}
	for _, name := range house.Services() {
		c.seen.Store(name, now())
	}
	return c
}

// Routes adds /healthz with the kubelet's checks, and /livez and /readyz with one for each
// service: livez fails for a service that does not answer, readyz also for one that does
// not work. Results are in /metrics/slis.
func (c *Checker) Routes(mux *http.ServeMux) {
	check := func(name string, run func(context.Context) error) healthz.HealthChecker {
		return healthz.NamedCheck(name, func(r *http.Request) error { return run(r.Context()) })
	}
	healthz.InstallHandler(mux, healthz.PingHealthz, check("log", logWritable),
		check("syncloop", func(ctx context.Context) error { return c.moving(ctx, house.PodWorker, c.syncLimit()) }),
		check("device-plugin", func(ctx context.Context) error { return c.moving(ctx, house.Resource, stallLimit) }))
	live, ready := []healthz.HealthChecker{healthz.PingHealthz}, []healthz.HealthChecker{healthz.PingHealthz}
	for _, name := range house.Services() {
		if name == house.Bus && c.kit.Options.Bus != "" {
			continue // the node has none, or uses another
		}
		live = append(live, check(string(name), func(ctx context.Context) error { _, err := c.hello(ctx, name); return err }))
		ready = append(ready, check(string(name), func(ctx context.Context) error { return c.works(ctx, name) }))
	}
	healthz.InstallLivezHandler(mux, live...)
	healthz.InstallReadyzHandler(mux, ready...)
	slis.SLIMetricsWithReset{}.Install(mux)
}

// Local is the local port's /healthz, which is a kubelet's: ping. Until the node has started
// it answers 500 and what is missing. A kubelet opens that port when its parts are made, and
// installers and tests take it as the sign that the kubelet can be asked. No part needs the
// API server for it.
func (c *Checker) Local() http.Handler {
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, healthz.PingHealthz)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.start(r.Context()); err != nil {
			http.Error(w, "the node has not started: "+err.Error(), http.StatusInternalServerError)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// start fails until podworker has answered and resource has worked.
func (c *Checker) start(ctx context.Context) error {
	if c.started.Load() {
		return nil
	}
	if _, err := c.hello(ctx, house.PodWorker); err != nil {
		return err
	}
	if err := c.works(ctx, house.Resource); err != nil {
		return err
	}
	c.started.Store(true)
	return nil
}

// Run checks the services of which healthz says how long they stand still, until the
// context ends.
func (c *Checker) Run(ctx context.Context) error {
	for {
		for _, name := range []house.Service{house.PodWorker, house.Resource} {
			if err := c.works(ctx, name); err != nil {
				c.kit.Log.DebugContext(ctx, "service does not work", "peer", string(name), service.KeyError, err.Error())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookPeriod):
		}
	}
}

// logWritable fails when the reader of this process's log does not read, so that the next
// line would block.
func logWritable(context.Context) error {
	fds := []unix.PollFd{{Fd: int32(unix.Stderr), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(time.Second/time.Millisecond))
	if errors.Is(err, unix.EINTR) {
		return nil // it did not wait for long
	}
	if err != nil || n == 0 {
		return errors.New("logging blocked")
	}
	return nil
}

func (c *Checker) hello(ctx context.Context, name house.Service) (*nodev1.HelloResponse, error) {
	if name == house.NodeAPI {
		return c.kit.Hello(), nil
	}
	conn, err := c.kit.Dial(name)
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

func (c *Checker) works(ctx context.Context, name house.Service) error {
	hello, err := c.hello(ctx, name)
	if err == nil && hello.GetHealth() != nodev1.Health_HEALTH_SERVING {
		err = fmt.Errorf("%s: %s", name, hello.GetHealthReason())
	}
	if err == nil {
		c.seen.Store(name, c.now())
	}
	return err
}

// moving fails when a service has not been seen at work for longer than limit.
func (c *Checker) moving(ctx context.Context, name house.Service, limit time.Duration) error {
	err := c.works(ctx, name)
	if err == nil {
		return nil
	}
	last, _ := c.seen.Load(name)
	if still := c.now().Sub(last.(time.Time)); still > limit {
		return fmt.Errorf("%w, for %s", err, still.Round(time.Second))
	}
	return nil
}

func (c *Checker) syncLimit() time.Duration {
	if conf := c.conf(); conf != nil {
		return max(stallLimit, 2*conf.Kubelet.SyncFrequency.Duration)
	}
	return stallLimit
}
