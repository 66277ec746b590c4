// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/store"
)

const (
	// healthLasts is how long a report counts unless the driver says otherwise.
	healthLasts = 30 * time.Second
	// healthMost bounds what a driver says; a longer time is no other to a node.
	healthMost = 365 * 24 * time.Hour
	// messageMost bounds the message of a device, in bytes (KEP-4680: characters).
	messageMost = 1024
	// devicesMost bounds the devices of a driver that reports are kept of.
	devicesMost = 10_000
)

// Health is how a device is (KEP-4680).
type Health struct {
	State   v1.ResourceHealthStatus `json:"state"`
	Message string                  `json:"message,omitempty"`
}

// report is what a driver said of a device last.
type report struct {
	Health
	// Lasts is how long it counts.
	Lasts time.Duration `json:"lasts"`

	until time.Time
	from  *instance // nil for one kept from an earlier life
}

// healths are the reports of drivers about their devices. They are kept in the store, for
// a restart of the service is no news of a device: what was kept counts from the start on
// as if it had just arrived.
type healths struct {
	table *store.Table[map[string]report]
	now   func() time.Time

	mu      sync.Mutex
	drivers map[string]map[string]report // by driver, then POOL/DEVICE
	kept    map[string]map[string]report // the same as the store has it, which is what pods show
	changed map[string]bool              // drivers, since the last collect
	wake    signal.Signal
}

func openHealths(s *store.Store, now func() time.Time) (*healths, error) {
	h := &healths{now: now, drivers: map[string]map[string]report{}, kept: map[string]map[string]report{}, changed: map[string]bool{}, wake: signal.New()}
	h.table = store.NewTable(s, "dra-health", store.JSON[map[string]report]())
	kept, err := h.table.All()
	if err != nil {
		return nil, err
	}
	for driver, reports := range kept {
		for key, r := range reports {
			r.until = now().Add(r.Lasts)
			reports[key] = r
		}
		h.drivers[driver], h.kept[driver] = reports, maps.Clone(reports)
	}
	return h, nil
}

// of is the health of a device, as it was kept last; Unknown where no report counts.
func (h *healths) of(driver, pool, device string) Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, ok := h.kept[driver][pool+"/"+device]; ok {
		return r.Health
	}
	return Health{State: v1.ResourceHealthStatusUnknown}
}

// take takes in a whole list of a driver's devices. Of those that are not in it the former
// report counts until its time is over.
func (h *healths) take(from *instance, list []*drahealth.DeviceHealth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, now := h.drivers[from.driver], h.now()
	next := map[string]report{}
	for _, d := range list[:min(len(list), devicesMost)] {
		r := reportOf(d)
		r.until, r.from = now.Add(r.Lasts), from
		next[d.GetDevice().GetPoolName()+"/"+d.GetDevice().GetDeviceName()] = r
	}
	for key, r := range next {
		was, ok := old[key]
		h.note(from.driver, !ok || was.Health != r.Health || was.Lasts != r.Lasts)
	}
	for key, r := range old {
		if _, listed := next[key]; !listed && len(next) < devicesMost {
			next[key] = r
		}
	}
	h.drivers[from.driver] = next
	h.wake.Send() // the next end of a report may be earlier
}

// reportOf reads what a driver says of a device.
func reportOf(d *drahealth.DeviceHealth) report {
	r := report{Health: Health{State: v1.ResourceHealthStatusUnknown, Message: d.GetMessage()}, Lasts: healthLasts}
	switch d.GetHealth() {
	case drahealth.HealthStatus_HEALTHY:
		r.State = v1.ResourceHealthStatusHealthy
	case drahealth.HealthStatus_UNHEALTHY:
		r.State = v1.ResourceHealthStatusUnhealthy
	case drahealth.HealthStatus_UNKNOWN:
	}
	if n := d.GetHealthCheckTimeoutSeconds(); n > 0 {
		r.Lasts = min(pod.Seconds(n), healthMost)
	}
	if len(r.Message) > messageMost {
		r.Message = strings.ToValidUTF8(r.Message[:messageMost-len("...")], "") + "..."
	}
	return r
}

// drop forgets what an instance of a driver reported: its stream has ended.
func (h *healths) drop(from *instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.drivers[from.driver], func(_ string, r report) bool {
		h.note(from.driver, r.from == from)
		return r.from == from
	})
}

// note has a driver's reports looked at; callers hold the lock.
func (h *healths) note(driver string, changed bool) {
	if changed {
		h.changed[driver] = true
		h.wake.Send()
	}
}

// collect drops reports whose time is over. It returns the drivers of which a report has
// changed since the last call, and when the next report ends; zero for never.
func (h *healths) collect() (drivers []string, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for driver, reports := range h.drivers {
		maps.DeleteFunc(reports, func(_ string, r report) bool {
			over := now.After(r.until)
			if !over && (next.IsZero() || r.until.Before(next)) {
				next = r.until
			}
			h.changed[driver] = h.changed[driver] || over
			return over
		})
	}
	for _, driver := range slices.Sorted(maps.Keys(h.changed)) {
		if h.changed[driver] {
			drivers = append(drivers, driver)
		}
	}
	clear(h.changed)
	return drivers, next
}

// keep writes the reports of a driver. They are what pods show from then on: a restart does
// not take back what was shown.
func (h *healths) keep(driver string) error {
	h.mu.Lock()
	reports := maps.Clone(h.drivers[driver])
	h.mu.Unlock()
	var err error
	if len(reports) == 0 {
		err = h.table.Delete(driver)
	} else {
		err = h.table.Put(driver, reports)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept[driver] = reports
	return err
}
