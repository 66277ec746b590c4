// SPDX-License-Identifier: Apache-2.0

// Package pulls says which images are being pulled, and how that goes on.
//
// It is the only writer of the feed podworker.pulls. The CRI tells nothing of a
// pull before it ends; what can be known is since when it waits or runs, and how
// much more the image store holds than when it began. That is read every five
// seconds while a pull is under way, and never otherwise. It keeps nothing: after
// a restart pulls begin again.
package pulls

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/wire"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// Period of the readings.
const Period = 5 * time.Second

// Deps is what Pulls works with.
type Deps struct {
	Images runtimeapi.ImageServiceClient
	Feed   *feed.Owner[*podworkerv1.PodPulls]
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// Pulls are those under way. Safe for concurrent use.
type Pulls struct {
	deps  Deps
	dirty *signal.Keys // pods to publish, by UID

	mu  sync.Mutex
	all map[*Pull]bool
}

// Pull is one image for one container, or one image volume, of a pod.
type Pull struct {
	of  *Pulls
	uid string

	container, image string
	since            time.Time // of the wait, then of the pull
	running          bool
	// before is what the image store held when the pull began; nil until it was read.
	before, now *uint64
	read        time.Time
}

// New makes Pulls; Run has them published.
func New(deps Deps) *Pulls {
	return &Pulls{deps: deps, dirty: signal.NewKeys(), all: map[*Pull]bool{}}
}

// Begin reports a pull that waits for its turn. container is empty for an image
// volume.
func (p *Pulls) Begin(uid, container, image string) *Pull {
	one := &Pull{of: p, uid: uid, container: container, image: image, since: p.deps.Clock.Now()}
	p.change(uid, func() { p.all[one] = true })
	return one
}

// Running says that its turn has come.
func (one *Pull) Running() {
	one.of.change(one.uid, func() { one.running, one.since = true, one.of.deps.Clock.Now() })
}

// End says that it is over, however.
func (one *Pull) End() { one.of.change(one.uid, func() { delete(one.of.all, one) }) }

func (p *Pulls) change(uid string, f func()) {
	p.mu.Lock()
	f()
	p.mu.Unlock()
	p.dirty.Mark([]string{uid})
}

// Run publishes until ctx ends.
func (p *Pulls) Run(ctx context.Context) error {
	p.deps.Feed.SetComplete(ctx, true)
	ticker := p.deps.Clock.NewTicker(Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.dirty.Wake:
			p.measure(ctx, func(one *Pull) bool { return one.before == nil })
		case <-ticker.C():
			p.measure(ctx, func(*Pull) bool { return true })
		}
		p.publish(ctx)
	}
}

// measure reads the image store if there is a running pull to read it for.
func (p *Pulls) measure(ctx context.Context, want func(*Pull) bool) {
	p.mu.Lock()
	var asking []*Pull
	for one := range p.all {
		if one.running && want(one) {
			asking = append(asking, one)
		}
	}
	p.mu.Unlock()
	if len(asking) == 0 {
		return
	}
	used, ok := p.used(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range asking {
		one.read = p.deps.Clock.Now()
		p.dirty.Keep(one.uid)
		if !ok {
			one.now = nil
			continue
		}
		one.now = &used
		if one.before == nil {
			one.before = &used
		}
	}
}

// used is how much the image store holds, in bytes.
func (p *Pulls) used(ctx context.Context) (bytes uint64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, Period)
	defer cancel()
	resp, err := p.deps.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		p.deps.Log.DebugContext(ctx, "image store not read", "error", err.Error())
		return 0, false
	}
	for _, fs := range resp.GetImageFilesystems() {
		if fs.GetUsedBytes() == nil {
			return 0, false
		}
		bytes, ok = bytes+fs.GetUsedBytes().GetValue(), true
	}
	return bytes, ok
}

// publish says what has changed.
func (p *Pulls) publish(ctx context.Context) {
	items := map[string]*podworkerv1.PodPulls{}
	for uid := range p.dirty.Take() {
		items[uid] = &podworkerv1.PodPulls{Uid: uid}
	}
	p.mu.Lock()
	for one := range p.all {
		if item := items[one.uid]; item != nil {
			item.Pulls = append(item.Pulls, one.wire())
		}
	}
	p.mu.Unlock()
	for uid, item := range items {
		if len(item.GetPulls()) == 0 {
			p.deps.Feed.Delete(ctx, uid)
			continue
		}
		slices.SortFunc(item.Pulls, func(a, b *podworkerv1.Pull) int {
			return cmp.Or(cmp.Compare(a.GetContainer(), b.GetContainer()), cmp.Compare(a.GetImage(), b.GetImage()))
		})
		if _, err := p.deps.Feed.Set(ctx, uid, item); err != nil {
			p.deps.Log.ErrorContext(ctx, "pulls not published", "uid", uid, "error", err.Error())
		}
	}
}

func (one *Pull) wire() *podworkerv1.Pull {
	m := &podworkerv1.Pull{Container: one.container, Image: one.image, Queued: !one.running, Since: timestamppb.New(one.since), ReadAt: wire.Time(one.read)}
	if one.now != nil && one.before != nil {
		m.StoreGrownBytes = new(int64(*one.now) - int64(*one.before))
	}
	return m
}
