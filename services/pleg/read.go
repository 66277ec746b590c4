package pleg

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/pleg/internal/record"
)

// readers serializes the readings of each pod, so that none is overtaken by an
// older one, and remembers what was read last.
type readers struct {
	mu   sync.Mutex
	pods map[string]*reader
}

type reader struct {
	turn        chan struct{} // capacity 1: held while reading
	fingerprint uint64
	failing     bool
	// exited keeps the status of containers that can no longer change.
	exited map[string]*runtimeapi.ContainerStatus
}

func newReaders() *readers { return &readers{pods: map[string]*reader{}} }

func (r *readers) of(uid string) *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	if p == nil {
		p = &reader{turn: make(chan struct{}, 1), exited: map[string]*runtimeapi.ContainerStatus{}}
		r.pods[uid] = p
	}
	return p
}

// differs tells whether a pod must be read: it looks different from the last
// reading, or that reading failed.
func (r *readers) differs(uid string, fingerprint uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	return p == nil || p.failing || p.fingerprint != fingerprint
}

func (r *readers) done(p *reader, fingerprint uint64, failing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.fingerprint, p.failing = fingerprint, failing
}

// forget drops pods that are nowhere any more and not being read.
func (r *readers) forget(gone func(uid string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, p := range r.pods {
		if len(p.turn) == 0 && gone(uid) {
			delete(r.pods, uid)
		}
	}
}

// read asks the runtime about one pod and publishes the answer. The reading
// begins after the call. A failed reading leaves the last record in place, with
// the error beside it.
func (s *Service) read(ctx context.Context, uid string) (*plegv1.PodRecord, feed.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Call)
	defer cancel()
	p := s.readers.of(uid)
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, feed.Revision{}, fmt.Errorf("an earlier reading has not ended: %w", ctx.Err())
	}
	defer func() { <-p.turn }()

	start := s.now()
	defer func() { s.metrics.podRelist.Observe(s.now().Sub(start).Seconds()) }()
	listing, err := s.list(ctx, uid)
	if err != nil {
		return nil, feed.Revision{}, s.failed(uid, p, err)
	}
	r, err := s.statuses(ctx, uid, p, listing)
	if err != nil {
		return nil, feed.Revision{}, s.failed(uid, p, err)
	}
	s.readers.done(p, listing.Fingerprint(), false)
	if r == nil {
		return nil, s.pods.Delete(ctx, uid), nil
	}
	revision, err := s.pods.Set(ctx, uid, r)
	return r, revision, err
}

func (s *Service) list(ctx context.Context, uid string) (*record.Listing, error) {
	labels := map[string]string{pod.PodUIDLabel: uid}
	sandboxes, err := s.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels},
	})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := s.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: labels},
	})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return &record.Listing{Sandboxes: sandboxes.GetItems(), Containers: containers.GetContainers()}, nil
}

func (s *Service) statuses(ctx context.Context, uid string, p *reader, listing *record.Listing) (*plegv1.PodRecord, error) {
	var sandboxes []*runtimeapi.PodSandboxStatus
	for _, item := range listing.Sandboxes {
		resp, err := s.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: item.GetId()})
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", item.GetId(), err)
		}
		sandboxes = append(sandboxes, resp.GetStatus())
	}
	exited := map[string]*runtimeapi.ContainerStatus{}
	var containers []*runtimeapi.ContainerStatus
	for _, item := range listing.Containers {
		st, known := p.exited[item.GetId()]
		if !known || item.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			resp, err := s.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: item.GetId()})
			if isGone(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("container %s: %w", item.GetId(), err)
			}
			st = resp.GetStatus()
		}
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			exited[item.GetId()] = st
		}
		containers = append(containers, st)
	}
	p.exited = exited // guarded by turn
	return record.Build(uid, listing, sandboxes, containers)
}

// failed marks the pod for another reading and says so in its record, once.
func (s *Service) failed(uid string, p *reader, err error) error {
	s.readers.done(p, p.fingerprint, true)
	last, ok := s.pods.Get(uid)
	if !ok {
		return err
	}
	if last.GetError() == "" {
		last.ErrorSince = timestamppb.New(s.now().Truncate(time.Second))
	}
	last.Error = status.Convert(err).Message()
	if _, setErr := s.pods.Set(context.Background(), uid, last); setErr != nil {
		return setErr
	}
	return err
}

func isGone(err error) bool { return err != nil && status.Code(err) == codes.NotFound }
