// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// heart is one loop that must beat.
type heart struct {
	name  string
	limit time.Duration
	made  time.Time
	last  atomic.Int64 // beat, nanoseconds after made: the time of day may be set
}

// hearts are the loops of the process. Safe for concurrent use.
type hearts struct {
	mu  sync.Mutex
	all []*heart
}

// Heart registers a loop with the watchdog: the loop calls beat at each iteration, and
// the process is reported stuck when it has not called it for limit.
func (k *Kit) Heart(name string, limit time.Duration) (beat func()) {
	h := &heart{name: name, limit: limit, made: time.Now()}
	k.hearts.mu.Lock()
	k.hearts.all = append(k.hearts.all, h)
	k.hearts.mu.Unlock()
	return func() { h.last.Store(int64(time.Since(h.made))) }
}

// stuck names the loops without a beat within their limit.
func (hs *hearts) stuck(now time.Time) []string {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var names []string
	for _, h := range hs.all {
		if now.Sub(h.made)-time.Duration(h.last.Load()) > h.limit {
			names = append(names, h.name)
		}
	}
	return names
}

// watchdog is Notify once the process's socket listens.
func (k *Kit) watchdog(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-k.Server.Listening():
	}
	return Notify(ctx, k.Log, k.hearts.stuck)
}

// Notify notifies systemd that the process is up, then periodically as long as stuck
// names no loop, and when the process stops (sd_notify(3): READY=1, WATCHDOG=1,
// STOPPING=1). Without systemd it does nothing. stuck is nil for a process that does not
// tell.
func Notify(ctx context.Context, log *slog.Logger, stuck func(now time.Time) []string) error {
	notify := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("sd_notify", KeyError, err.Error())
		}
	}
	notify(daemon.SdNotifyReady)
	defer notify(daemon.SdNotifyStopping)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if stuck != nil {
				if names := stuck(now); len(names) > 0 {
					log.Error("loops are stuck: watchdog not fed", "loops", names)
					continue
				}
			}
			notify(daemon.SdNotifyWatchdog)
		}
	}
}
