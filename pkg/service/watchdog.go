package service

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// heart is one loop that must come round.
type heart struct {
	name  string
	limit time.Duration
	last  atomic.Int64 // unix nanoseconds
}

// Heart registers a loop with the watchdog: the loop calls beat each time it
// comes round, and the process is reported stuck when it has not for limit.
func (k *Kit) Heart(name string, limit time.Duration) (beat func()) {
	h := &heart{name: name, limit: limit}
	h.last.Store(time.Now().UnixNano())
	k.mu.Lock()
	k.hearts = append(k.hearts, h)
	k.mu.Unlock()
	return func() { h.last.Store(time.Now().UnixNano()) }
}

// stuck names the loops that have not come round in time.
func (k *Kit) stuck(now time.Time) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for _, h := range k.hearts {
		if now.Sub(time.Unix(0, h.last.Load())) > h.limit {
			names = append(names, h.name)
		}
	}
	return names
}

// watchdog tells systemd that the process is up once its socket listens, goes on
// telling it as long as every heart beats, and says when the process stops
// (sd_notify(3): READY=1, WATCHDOG=1, STOPPING=1). Without systemd it does nothing.
func (k *Kit) watchdog(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-k.Server.Listening():
	}
	k.notify(daemon.SdNotifyReady)
	defer k.notify(daemon.SdNotifyStopping)
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
			if names := k.stuck(now); len(names) > 0 {
				k.Log.Error("loops are stuck: watchdog not fed", "loops", names)
				continue
			}
			k.notify(daemon.SdNotifyWatchdog)
		}
	}
}

func (k *Kit) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		k.Log.Warn("sd_notify", KeyError, err.Error())
	}
}
