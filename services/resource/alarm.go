// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"log/slog"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/services/resource/internal/notify"
)

// alarm has the kernel hurry the next pass when memory gets short; the loop's alone.
type alarm struct {
	host gauge.Host
	log  *slog.Logger
	call func()
	// notifier is nil while nothing is set; at is when it was.
	notifier *notify.Notifier
	at       time.Time
	failed   string
}

// set sets the thresholds of a configuration that wants that. It sets them again when they are
// as old as a pass, as the usage that they stand for follows what is inactive, and when a
// notification may have caused this pass (hurried): page cache can cross a threshold without
// a shortage, and the kernel does not notify of the same crossing twice.
func (a *alarm) set(at time.Time, hurried bool, now *settings, in eviction.Input) {
	if !now.conf.Kubelet.KernelMemcgNotification {
		a.stop()
		return
	}
	if a.notifier != nil && !hurried && at.Sub(a.at) < period && !at.Before(a.at) {
		return
	}
	var all []notify.Threshold
	for signal, crossings := range eviction.Crossings(in.Config.Thresholds, in.Observed) {
		cgroup := "/"
		if signal == eviction.AllocatableMemory {
			cgroup = pod.KubepodsCgroup(now.root).Path(now.driver)
		}
		for _, c := range crossings {
			all = append(all, notify.Threshold{Cgroup: cgroup, Usage: c.Usage, Reached: c.Reached})
		}
	}
	next, err := notify.New(a.host.Root, a.host.Version, all, a.call)
	if err != nil {
		if a.failed != err.Error() {
			a.log.Warn("no notifications of memory from the kernel", "error", err.Error())
		}
		a.failed = err.Error()
		return
	}
	a.stop()
	a.notifier, a.at, a.failed = next, at, ""
}

// stop ends the calls.
func (a *alarm) stop() {
	if a.notifier == nil {
		return
	}
	if err := a.notifier.Close(); err != nil {
		a.log.Error("notifications of memory", "error", err.Error())
	}
	a.notifier = nil
}
