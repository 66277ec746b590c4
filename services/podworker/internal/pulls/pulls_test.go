// SPDX-License-Identifier: Apache-2.0

package pulls

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/feed"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// store is an image store that can be made to hold more.
type store struct {
	runtimeapi.ImageServiceClient
	mu    sync.Mutex
	used  uint64
	err   error
	reads int
}

func (s *store) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{UsedBytes: &runtimeapi.UInt64Value{Value: s.used}}}}, s.err
}

func (s *store) set(used uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.err = used, err
}

type silent struct{}

func (silent) Announce(context.Context, string, string, feed.Revision) {}
func (silent) Connected() bool                                         { return true }

// in runs a test on a clock of its own.
func in(t *testing.T, test func(p *Pulls, s *store, owner *feed.Owner[*podworkerv1.PodPulls])) {
	synctest.Test(t, func(t *testing.T) {
		s, owner := &store{used: 1000}, feed.NewOwner[*podworkerv1.PodPulls]("podworker.pulls", "e", silent{})
		p := New(Deps{Images: s, Feed: owner, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		synctest.Wait()
		test(p, s, owner)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// promised is how often users read how far a pull is (docs/measurements.md). It is a
// number here, so that the test fails when Period grows.
const promised = 5 * time.Second

func TestAPullIsToldOfEveryFiveSeconds(t *testing.T) {
	in(t, func(p *Pulls, s *store, owner *feed.Owner[*podworkerv1.PodPulls]) {
		told := func() *podworkerv1.Pull {
			synctest.Wait()
			item, ok := owner.Get("u1")
			if !ok || len(item.GetPulls()) != 1 {
				t.Fatalf("told %v", item)
			}
			return item.GetPulls()[0]
		}
		began := time.Now()
		one := p.Begin("u1", "web", "example/big:v1")
		if got := told(); !got.GetQueued() || got.GetImage() != "example/big:v1" || got.GetContainer() != "web" || !got.GetSince().AsTime().Equal(began) || got.StoreGrownBytes != nil {
			t.Errorf("queued: %v", got)
		}
		<-time.After(7 * time.Second)
		if s.reads != 0 {
			t.Errorf("the store was read %d times for a pull that waits", s.reads)
		}
		one.Running()
		if got := told(); got.GetQueued() || !got.GetSince().AsTime().Equal(began.Add(7*time.Second)) || got.StoreGrownBytes == nil || got.GetStoreGrownBytes() != 0 {
			t.Errorf("running: %v", got)
		}
		s.set(1700, nil)
		<-time.After(promised)
		if got := told(); got.GetStoreGrownBytes() != 700 || time.Since(got.GetReadAt().AsTime()) > promised {
			t.Errorf("after a period: %v", got)
		}
		s.set(1700, errors.New("stuck"))
		<-time.After(promised)
		if got := told(); got.StoreGrownBytes != nil {
			t.Errorf("while the runtime does not tell: %v", got)
		}
		s.set(2000, nil)
		<-time.After(promised)
		if got := told(); got.GetStoreGrownBytes() != 1000 {
			t.Errorf("when it tells again: %v", got)
		}
		one.End()
		synctest.Wait()
		if _, ok := owner.Get("u1"); ok {
			t.Error("still told of when it is over")
		}
		reads := s.reads
		<-time.After(10 * promised)
		if s.reads != reads {
			t.Errorf("the store was read %d times while nothing was pulled", s.reads-reads)
		}
	})
}

func TestPullsOfOnePod(t *testing.T) {
	in(t, func(p *Pulls, _ *store, owner *feed.Owner[*podworkerv1.PodPulls]) {
		a, b := p.Begin("u1", "b", "x"), p.Begin("u1", "a", "y")
		p.Begin("u2", "", "z").Running()
		b.Running()
		synctest.Wait()
		item, _ := owner.Get("u1")
		if got := item.GetPulls(); len(got) != 2 || got[0].GetContainer() != "a" || got[0].GetQueued() || !got[1].GetQueued() {
			t.Errorf("told %v", got)
		}
		a.End()
		synctest.Wait()
		if item, _ = owner.Get("u1"); len(item.GetPulls()) != 1 {
			t.Errorf("told %v", item)
		}
	})
}
