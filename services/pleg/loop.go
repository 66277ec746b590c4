// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/pleg/internal/record"
)

// relistLoop is the safety net: it lists everything and reads the pods that
// differ from what was published.
func (s *Service) relistLoop(ctx context.Context) error {
	var last time.Time
	for {
		s.beat()
		start := s.now()
		if !last.IsZero() {
			s.metrics.relistInterval.Observe(start.Sub(last).Seconds())
		}
		last = start
		err := s.relistOnce(ctx)
		s.metrics.relistDuration.Observe(s.now().Sub(start).Seconds())
		if err == nil {
			s.metrics.lastSeen.Set(float64(s.now().Unix()))
			s.kit.Serving()
		} else if ctx.Err() == nil {
			s.kit.Log.Debug("relist failed", "error", err.Error())
		}
		period := s.cfg.Relist
		if err == nil && s.events.flowing() && !s.readers.failing() {
			period = s.cfg.RelistWithEvents
		}
		if !s.sleep(ctx, period) {
			return nil
		}
	}
}

// relistOnce lists once and waits for the readings it caused, each bounded by
// its own deadline. The first one through makes the feed complete.
func (s *Service) relistOnce(ctx context.Context) error {
	listCtx, cancel := context.WithTimeout(ctx, s.cfg.Call)
	defer cancel()
	sandboxes, err := s.runtime.ListPodSandbox(listCtx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	containers, err := s.runtime.ListContainers(listCtx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	listed := record.Group(sandboxes.GetItems(), containers.GetContainers())
	var differ []string
	for uid, listing := range listed {
		if s.readers.differs(uid, listing.Fingerprint()) {
			differ = append(differ, uid)
		}
	}
	for _, uid := range s.pods.Keys() {
		if listed[uid] == nil {
			differ = append(differ, uid) // read it: the list may be older than a refresh
		}
	}
	s.readAll(ctx, differ)
	if err := ctx.Err(); err != nil {
		return err
	}
	published := map[string]bool{}
	for _, uid := range s.pods.Keys() {
		published[uid] = true
	}
	s.readers.forget(func(uid string) bool { return listed[uid] == nil && !published[uid] })
	s.pods.SetComplete(ctx, true)
	return nil
}

// patience is how long a reading keeps its place among the parallel ones. A pod
// on which the runtime hangs holds up no more than that.
const patience = time.Second

// readAll reads pods in parallel and waits for all of them; each has published
// its record, or its error, then.
func (s *Service) readAll(ctx context.Context, uids []string) {
	places := make(chan struct{}, s.cfg.Parallel)
	var all sync.WaitGroup
	for _, uid := range uids {
		places <- struct{}{}
		leave := sync.OnceFunc(func() { <-places })
		late := time.AfterFunc(patience, leave)
		all.Go(func() {
			defer leave()
			defer late.Stop()
			if _, _, err := s.read(ctx, uid, listed()); err != nil && ctx.Err() == nil {
				s.kit.Log.Warn("pod not read", "uid", uid, "error", err.Error())
			}
		})
	}
	all.Wait()
}
