// SPDX-License-Identifier: Apache-2.0

package status

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/pod"
)

// nodeStartup measures how long a new node takes from its boot to being ready.
// All is zero for a node that was registered before this process.
type nodeStartup struct {
	booted, started time.Time
	now             func() time.Time

	mu                           sync.Mutex
	attempted, registered, ready time.Time

	preKubelet, preRegistration, registration, postRegistration, whole prometheus.Gauge
}

func newNodeStartup(r prometheus.Registerer, booted, started time.Time, now func() time.Time) *nodeStartup {
	gauge := func(name, help string) prometheus.Gauge {
		return metric.In(r).Gauge("kubelet_node_startup_"+name+"duration_seconds", help)
	}
	return &nodeStartup{
		booted: booted, started: started, now: now,
		preKubelet:       gauge("pre_kubelet_", "Seconds from the boot to the start of the node agent."),
		preRegistration:  gauge("pre_registration_", "Seconds from the start of the node agent to its first try to register the Node."),
		registration:     gauge("registration_", "Seconds from the first try to register the Node to its being registered."),
		postRegistration: gauge("post_registration_", "Seconds from the Node being registered to its being ready."),
		whole:            gauge("", "Seconds from the boot to the Node being ready."),
	}
}

// Attempt implements nodesync.Startup.
func (n *nodeStartup) Attempt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.attempted.IsZero() {
		n.attempted = n.now()
	}
}

// Registered implements nodesync.Startup.
func (n *nodeStartup) Registered() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.registered.IsZero() {
		return
	}
	n.registered = n.now()
	if !n.booted.IsZero() {
		n.preKubelet.Set(n.started.Sub(n.booted).Seconds())
	}
	n.preRegistration.Set(n.attempted.Sub(n.started).Seconds())
	n.registration.Set(n.registered.Sub(n.attempted).Seconds())
}

// Ready implements nodesync.Startup.
func (n *nodeStartup) Ready() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.registered.IsZero() || !n.ready.IsZero() {
		return
	}
	n.ready = n.now()
	n.postRegistration.Set(n.ready.Sub(n.registered).Seconds())
	if !n.booted.IsZero() {
		n.whole.Set(n.ready.Sub(n.booted).Seconds())
	}
}

// bootTime is when the machine was started; zero when it does not say.
func bootTime(now time.Time) time.Time {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return time.Time{}
	}
	return now.Add(-pod.Seconds(info.Uptime)).Truncate(time.Second)
}
