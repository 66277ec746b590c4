// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/signal"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/pleg/internal/record"
)

// podReader reads pods and publishes what it reads.
type podReader struct {
	readers *readers
	runtime runtimeapi.RuntimeServiceClient
	records *feed.Owner[*plegv1.PodRecord]
	metrics *metrics
	now     func() time.Time
	life    context.Context // of the process: readings are bounded by it, and not by who asked
	call    time.Duration   // bounds one reading
	second  time.Duration   // see Config.SecondLook
	relist  signal.Signal   // which repeats a reading that failed
	places  places
}

// read asks the runtime about one pod and publishes the answer. The reading
// begins after the call, and is not broken off with it.
func (r *podReader) read(ctx context.Context, uid string, q question) (*plegv1.PodRecord, feed.Revision, error) {
	next, p, first := r.readers.ask(uid, q)
	if first {
		go r.readOn(uid, p)
	}
	select {
	case <-next.done:
		return next.record, next.revision, next.err
	case <-ctx.Done():
		return nil, feed.Revision{}, fmt.Errorf("the reading has not ended: %w", ctx.Err())
	}
}

// readOn reads a pod for as long as readings are requested.
func (r *podReader) readOn(uid string, p *reader) {
	for {
		leave := r.places.take(r.life)
		next := r.readers.begin(p)
		if next == nil {
			leave()
			return
		}
		ctx, cancel := context.WithTimeout(r.life, r.call)
		next.record, next.revision, next.err = r.readOnce(ctx, uid, p, next.question)
		cancel()
		r.readers.end(p)
		leave()
		close(next.done)
	}
}

// readOnce reads a pod now. A failed reading leaves the last record in place,
// with the error beside it.
func (r *podReader) readOnce(ctx context.Context, uid string, p *reader, q question) (*plegv1.PodRecord, feed.Revision, error) {
	start := r.now()
	defer func() { r.metrics.podRelist.Observe(r.now().Sub(start).Seconds()) }()
	listing := q.listing(p.found, p.exited)
	if listing == nil {
		var err error
		if listing, err = r.list(ctx, uid); err != nil {
			return nil, feed.Revision{}, r.failed(ctx, uid, p, err)
		}
	}
	found, err := r.statuses(ctx, uid, p, listing)
	if err != nil {
		return nil, feed.Revision{}, r.failed(ctx, uid, p, err)
	}
	p.found = new(inventoryOf(listing))
	r.readers.done(p, listing.Fingerprint())
	if found == nil {
		return nil, r.records.Delete(ctx, uid), nil
	}
	revision, err := r.records.Set(ctx, uid, found)
	return found, revision, err
}

func (r *podReader) list(ctx context.Context, uid string) (*record.Listing, error) {
	labels := map[string]string{pod.PodUIDLabel: uid}
	listing := &record.Listing{}
	var both errgroup.Group
	both.Go(func() error {
		resp, err := r.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels},
		})
		if err != nil {
			return fmt.Errorf("list sandboxes: %w", err)
		}
		listing.Sandboxes = resp.GetItems()
		return nil
	})
	both.Go(func() error {
		resp, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
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

func (r *podReader) statuses(ctx context.Context, uid string, p *reader, listing *record.Listing) (*plegv1.PodRecord, error) {
	sandboxes := make([]*runtimeapi.PodSandboxStatus, len(listing.Sandboxes))
	containers := make([]*runtimeapi.ContainerStatus, len(listing.Containers))
	var all errgroup.Group
	all.SetLimit(parallelCalls)
	for i, item := range listing.Sandboxes {
		all.Go(func() error {
			resp, err := r.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: item.GetId()})
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
			resp, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: item.GetId()})
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
	exited, failed, again := map[string]*runtimeapi.ContainerStatus{}, map[string]time.Time{}, false
	for _, st := range containers {
		if st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		id, now := st.GetId(), r.now()
		first, seen := p.failed[id]
		if !seen {
			first = now
		}
		if p.exited[id] != nil || !mayChange(st, first, now, r.second) {
			exited[id] = st
			continue
		}
		failed[id], again = first, again || !seen
	}
	p.exited, p.failed = exited, failed
	if again {
		r.readLater(uid)
	}
	r.metrics.running.note(uid, sandboxes, containers)
	return record.Build(uid, listing, sandboxes, containers)
}

// lately is how long ago a container may have failed for a second reading to be worth it.
const lately = time.Minute

// mayChange reports whether the runtime may yet give another reason for an exit that was first
// read at a time: containerd says "Error" until it learns that the container was killed for
// want of memory, and sends no event then.
func mayChange(st *runtimeapi.ContainerStatus, first, now time.Time, second time.Duration) bool {
	return st.GetReason() == reason.Error && now.Sub(time.Unix(0, st.GetFinishedAt())) <= lately && now.Sub(first) < second
}

// readLater reads a pod once more, after Config.SecondLook.
func (r *podReader) readLater(uid string) {
	time.AfterFunc(r.second, func() {
		if r.life.Err() == nil {
			_, _, _ = r.read(r.life, uid, newQuestion()) // a reading that fails is repeated by the relist
		}
	})
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

// failed marks the pod for another reading, by the next relist, and puts the error in its record, once. A
// pod that was never read gets a record with nothing but the error: without a record,
// readers would take the pod for gone. That podworker, through which all calls go, is away says
// nothing of the runtime, and is no error of a pod that was read.
func (r *podReader) failed(ctx context.Context, uid string, p *reader, err error) error {
	if r.life.Err() != nil {
		return err // broken off by the end of the process
	}
	if r.readers.failed(p) {
		r.relist.Send()
	}
	last, ok := r.records.Get(uid)
	if ok && rpc.Away(err) {
		return err
	}
	if !ok {
		last = &plegv1.PodRecord{Uid: uid}
	}
	if last.GetError() == "" {
		last.ErrorSince = timestamppb.New(r.now().Truncate(time.Second))
	}
	last.Error = status.Convert(err).Message()
	if _, setErr := r.records.Set(context.WithoutCancel(ctx), uid, last); setErr != nil {
		return setErr
	}
	return err
}

func isGone(err error) bool { return err != nil && status.Code(err) == codes.NotFound }
