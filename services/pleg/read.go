// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/pleg/internal/record"
)

// readers serializes the readings of each pod, so that none is overtaken by an older
// one, and remembers what was read last. Requests during a reading wait for the next
// one, which they share: a burst of events is two readings.
type readers struct {
	mu   sync.Mutex
	pods map[string]*reader
}

type reader struct {
	// guarded by readers.mu
	next        *reading // asked for, not begun
	running     bool
	readings    uint64 // begun
	fingerprint uint64
	failing     bool

	// What follows belongs to the running reading: the status of containers that can no
	// longer change, and what the last reading found, nil before the first.
	exited map[string]*runtimeapi.ContainerStatus
	found  *inventory
}

// reading is one look at one pod; its fields may be read when done is closed.
type reading struct {
	question question
	done     chan struct{}
	record   *plegv1.PodRecord
	revision feed.Revision
	err      error
}

func newReaders() *readers { return &readers{pods: map[string]*reader{}} }

// ask adds a question to the next reading of a pod. first is set if no goroutine runs the
// pod's readings yet.
func (r *readers) ask(uid string, q question) (next *reading, p *reader, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p = r.pods[uid]
	if p == nil {
		p = &reader{exited: map[string]*runtimeapi.ContainerStatus{}}
		r.pods[uid] = p
	}
	if p.next == nil {
		p.next = &reading{question: newQuestion(), done: make(chan struct{})}
	}
	p.next.question.join(q)
	first, p.running = !p.running, true
	return p.next, p, first
}

// begin takes the next reading; nil when none is requested.
func (r *readers) begin(p *reader) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := p.next
	p.next, p.running = nil, next != nil
	if next != nil {
		p.readings++
	}
	return next
}

// begun counts the readings of a pod that have begun.
func (r *readers) begun(uid string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		return p.readings
	}
	return 0
}

// differs reports whether a pod must be read: it looks different from the last
// reading, or that reading failed.
func (r *readers) differs(uid string, fingerprint uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	return p == nil || p.failing || p.fingerprint != fingerprint
}

func (r *readers) done(p *reader, fingerprint uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.fingerprint, p.failing = fingerprint, false
}

func (r *readers) failed(p *reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.failing = true
}

// failing reports whether the last reading of any pod failed.
func (r *readers) failing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if p.failing {
			return true
		}
	}
	return false
}

// forget drops pods that are nowhere any more and not being read.
func (r *readers) forget(gone func(uid string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, p := range r.pods {
		if !p.running && gone(uid) {
			delete(r.pods, uid)
		}
	}
}

// read asks the runtime about one pod and publishes the answer. The reading
// begins after the call, and is not broken off with it.
func (s *Service) read(ctx context.Context, uid string, q question) (*plegv1.PodRecord, feed.Revision, error) {
	next, p, first := s.readers.ask(uid, q)
	if first {
		go s.readOn(uid, p)
	}
	select {
	case <-next.done:
		return next.record, next.revision, next.err
	case <-ctx.Done():
		return nil, feed.Revision{}, fmt.Errorf("the reading has not ended: %w", ctx.Err())
	}
}

// readOn reads a pod for as long as readings are requested.
func (s *Service) readOn(uid string, p *reader) {
	for {
		r := s.readers.begin(p)
		if r == nil {
			return
		}
		ctx, cancel := context.WithTimeout(s.life, s.cfg.Call)
		r.record, r.revision, r.err = s.readOnce(ctx, uid, p, r.question)
		cancel()
		close(r.done)
	}
}

// readOnce reads a pod now. A failed reading leaves the last record in place,
// with the error beside it.
func (s *Service) readOnce(ctx context.Context, uid string, p *reader, q question) (*plegv1.PodRecord, feed.Revision, error) {
	start := s.now()
	defer func() { s.metrics.podRelist.Observe(s.now().Sub(start).Seconds()) }()
	listing := q.listing(p.found, p.exited)
	if listing == nil {
		var err error
		if listing, err = s.list(ctx, uid); err != nil {
			return nil, feed.Revision{}, s.failed(ctx, uid, p, err)
		}
	}
	r, err := s.statuses(ctx, uid, p, listing)
	if err != nil {
		return nil, feed.Revision{}, s.failed(ctx, uid, p, err)
	}
	found := inventoryOf(listing)
	p.found = &found
	s.readers.done(p, listing.Fingerprint())
	if r == nil {
		return nil, s.pods.Delete(ctx, uid), nil
	}
	revision, err := s.pods.Set(ctx, uid, r)
	return r, revision, err
}

func (s *Service) list(ctx context.Context, uid string) (*record.Listing, error) {
	labels := map[string]string{pod.PodUIDLabel: uid}
	listing := &record.Listing{}
	var both errgroup.Group
	both.Go(func() error {
		resp, err := s.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels},
		})
		if err != nil {
			return fmt.Errorf("list sandboxes: %w", err)
		}
		listing.Sandboxes = resp.GetItems()
		return nil
	})
	both.Go(func() error {
		resp, err := s.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{LabelSelector: labels},
		})
		if err != nil {
			return fmt.Errorf("list containers: %w", err)
		}
		listing.Containers = resp.GetContainers()
		return nil
	})
	return listing, both.Wait()
}

// parallelCalls bounds the questions about one pod that are asked at once.
const parallelCalls = 4

func (s *Service) statuses(ctx context.Context, uid string, p *reader, listing *record.Listing) (*plegv1.PodRecord, error) {
	sandboxes := make([]*runtimeapi.PodSandboxStatus, len(listing.Sandboxes))
	containers := make([]*runtimeapi.ContainerStatus, len(listing.Containers))
	var all errgroup.Group
	all.SetLimit(parallelCalls)
	for i, item := range listing.Sandboxes {
		all.Go(func() error {
			resp, err := s.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: item.GetId()})
			sandboxes[i] = resp.GetStatus()
			if err = answered(err, resp.GetStatus() != nil); err != nil {
				return fmt.Errorf("sandbox %s: %w", item.GetId(), err)
			}
			return nil
		})
	}
	for i, item := range listing.Containers {
		if st, known := p.exited[item.GetId()]; known && item.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			containers[i] = st
			continue
		}
		all.Go(func() error {
			resp, err := s.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: item.GetId()})
			containers[i] = resp.GetStatus()
			if err = answered(err, resp.GetStatus() != nil); err != nil {
				return fmt.Errorf("container %s: %w", item.GetId(), err)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	listing.See(sandboxes, containers)
	sandboxes = slices.DeleteFunc(sandboxes, func(st *runtimeapi.PodSandboxStatus) bool { return st == nil })
	containers = slices.DeleteFunc(containers, func(st *runtimeapi.ContainerStatus) bool { return st == nil })
	exited := map[string]*runtimeapi.ContainerStatus{}
	for _, st := range containers {
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			exited[st.GetId()] = st
		}
	}
	p.exited = exited
	s.metrics.running.note(uid, sandboxes, containers)
	return record.Build(uid, listing, sandboxes, containers)
}

// answered is what is wrong with an answer about one sandbox or container. That
// there is no such one any more is not.
func answered(err error, status bool) error {
	switch {
	case isGone(err):
		return nil
	case err == nil && !status:
		return errors.New("the runtime answered without a status")
	}
	return err
}

// failed marks the pod for another reading and puts the error in its record, once. A
// pod that was never read gets a record with nothing but the error: without a record,
// readers would take the pod for gone.
func (s *Service) failed(ctx context.Context, uid string, p *reader, err error) error {
	if s.life.Err() != nil {
		return err // broken off by the end of the process
	}
	s.readers.failed(p)
	last, ok := s.pods.Get(uid)
	if !ok {
		last = &plegv1.PodRecord{Uid: uid}
	}
	if last.GetError() == "" {
		last.ErrorSince = timestamppb.New(s.now().Truncate(time.Second))
	}
	last.Error = status.Convert(err).Message()
	if _, setErr := s.pods.Set(context.WithoutCancel(ctx), uid, last); setErr != nil {
		return setErr
	}
	return err
}

func isGone(err error) bool { return err != nil && status.Code(err) == codes.NotFound }
