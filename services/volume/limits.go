// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
)

// refreshLimit is how long a driver may take to say how many volumes the node may have.
const refreshLimit = 2 * time.Minute

// limits asks drivers again how many volumes the node may have: as often as their CSIDriver
// says (nodeAllocatableUpdatePeriodSeconds), and when an attachment failed for want of
// room (KEP-4876). It keeps nothing: after kill -9 the periods begin again.
type limits struct {
	drivers *csi.Drivers
	objects *feed.Replica[*configv1.Object]
	clock   clock.Clock
	wake    signal.Signal
	log     *slog.Logger
	// asked is when each driver was asked last, or seen first. Only run uses it.
	asked map[string]time.Time
	// now are the drivers to ask at once.
	now *signal.Keys
	// busy are those that are being asked.
	done chan string
	busy map[string]bool
}

func newLimits(drivers *csi.Drivers, in *inputs, with clock.Clock, log *slog.Logger) *limits {
	l := &limits{
		drivers: drivers, objects: in.objects, clock: with, wake: signal.New(), log: log,
		asked: map[string]time.Time{}, now: signal.NewKeys(), done: make(chan string), busy: map[string]bool{},
	}
	prefix := volumetype.KindCSIDriver + "/"
	in.objects.Watch(func(keys []string) {
		if len(keys) == 0 || slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, prefix) }) {
			l.wake.Send()
		}
	})
	drivers.Watch(l.wake.Send)
	return l
}

// exhausted has a driver asked at once: an attachment failed for want of room.
func (l *limits) exhausted(driver string) { l.now.Mark([]string{driver}) }

// run works until ctx ends.
func (l *limits) run(ctx context.Context) error {
	timer := l.clock.NewTimer(l.step(ctx))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-timer.C():
		case name := <-l.done:
			delete(l.busy, name)
		case <-l.now.Wake:
			for name := range l.now.Take() {
				l.ask(ctx, name)
			}
		}
		timer.Reset(l.step(ctx))
	}
}

// step asks the drivers that are due and returns how long none is.
func (l *limits) step(ctx context.Context) time.Duration {
	due, wait := demand.Due(l.clock.Now(), l.periods(), l.asked)
	for _, name := range due {
		l.ask(ctx, name)
	}
	return wait
}

// periods are those of the registered drivers that have one.
func (l *limits) periods() map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, d := range l.drivers.List() {
		item, ok := l.objects.Get(volumetype.Ref{Kind: volumetype.KindCSIDriver, Name: d.Name}.Key())
		if !ok {
			continue
		}
		driver := &storagev1.CSIDriver{}
		if err := driver.Unmarshal(item.GetObject()); err != nil {
			continue // making its volume reports the error
		}
		if period := demand.UpdatePeriod(driver); period > 0 {
			all[d.Name] = period
		}
	}
	return all
}

// ask asks a driver, unless it is being asked. One that hangs holds up no other.
func (l *limits) ask(ctx context.Context, name string) {
	if l.busy[name] {
		return
	}
	l.busy[name] = true
	go func() {
		asking, cancel := context.WithTimeout(ctx, refreshLimit)
		defer cancel()
		if err := l.drivers.Refresh(asking, name); err != nil && ctx.Err() == nil {
			l.log.Error("limit of volumes not read again", "driver", name, "error", err.Error())
		}
		select {
		case l.done <- name:
		case <-ctx.Done():
		}
	}()
}
