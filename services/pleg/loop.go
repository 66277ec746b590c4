// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/pleg/internal/record"
)

// relister is the safety net: it lists everything and reads the pods that differ from what
// was published.
type relister struct {
	cfg     Config
	runtime runtimeapi.RuntimeServiceClient
	pods    *podReader
	flow    *eventFlow
	wake    signal.Signal // relist soon
	kit     *service.Kit
	metrics *metrics
	now     func() time.Time
	beat    func()
}

// run relists until ctx ends.
func (l *relister) run(ctx context.Context) error {
	var last time.Time
	for {
		l.beat()
		start := l.now()
		if !last.IsZero() {
			l.metrics.relistInterval.Observe(start.Sub(last).Seconds())
		}
		last = start
		// Events that flow since tell nothing of what happened between this list and the first.
		flowing := l.flow.flowing()
		err := l.relistOnce(ctx)
		l.metrics.relistDuration.Observe(l.now().Sub(start).Seconds())
		if err == nil {
			l.metrics.lastSeen.Set(float64(l.now().Unix()))
			l.kit.Serving()
		} else if ctx.Err() == nil {
			l.kit.Log.Debug("relist failed", "error", err.Error())
		}
		period := l.cfg.Relist
		if err == nil && flowing && l.flow.flowing() && !l.pods.readers.failing() {
			period = l.cfg.RelistWithEvents
		}
		if !l.sleep(ctx, period) {
			return nil
		}
	}
}

// relistOnce lists once and waits for the readings it caused, each bounded by
// its own deadline. The first one through makes the feed complete.
func (l *relister) relistOnce(ctx context.Context) error {
	listCtx, cancel := context.WithTimeout(ctx, l.cfg.Call)
	defer cancel()
	since := l.pods.readers.mark()
	sandboxes, err := l.runtime.ListPodSandbox(listCtx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	containers, err := l.runtime.ListContainers(listCtx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	listed := record.Group(sandboxes.GetItems(), containers.GetContainers())
	differ := map[string]question{}
	for uid, listing := range listed {
		if l.pods.readers.differs(uid, listing.Fingerprint()) {
			differ[uid] = given(listing, since)
		}
	}
	for _, uid := range l.pods.records.Keys() {
		if listed[uid] == nil {
			differ[uid] = given(&record.Listing{}, since)
		}
	}
	l.readAll(ctx, differ)
	if err := ctx.Err(); err != nil {
		return err
	}
	published := map[string]bool{}
	for _, uid := range l.pods.records.Keys() {
		published[uid] = true
	}
	l.pods.readers.forget(func(uid string) bool { return listed[uid] == nil && !published[uid] })
	l.pods.records.SetComplete(ctx, true)
	return nil
}

// readAll reads pods in parallel and waits for all of them; each has published
// its record, or its error, then. Those that run come first: when pleg starts, their
// probes wait for it.
func (l *relister) readAll(ctx context.Context, pods map[string]question) {
	few := make(places, l.cfg.Parallel)
	var all sync.WaitGroup
	var live, dead []string
	for uid, q := range pods {
		if q.given.Live() {
			live = append(live, uid)
		} else {
			dead = append(dead, uid)
		}
	}
	for _, uid := range append(live, dead...) {
		leave := few.take(ctx)
		all.Go(func() {
			defer leave()
			if _, _, err := l.pods.read(ctx, uid, pods[uid]); err != nil && ctx.Err() == nil {
				l.kit.Log.Warn("pod not read", "uid", uid, "error", err.Error())
			}
		})
	}
	all.Wait()
}

// sleep waits for d, a call for a relist, or the end; false means the end.
func (l *relister) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-l.wake:
	}
	return true
}
