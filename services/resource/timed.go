// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"sync"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
)

// timed are cgroups whose making, changing and removing is timed.
type timed struct {
	Cgroups
	driver pod.CgroupDriver
	m      *metrics
	now    func() time.Time
	known  *known
}

// known are the cgroups that were there when they were last touched.
type known struct {
	mu   sync.Mutex
	path map[string]bool
}

// note reports whether a cgroup was there, and that it now is or is not.
func (k *known) note(path string, now bool) (was bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was = k.path[path]
	if k.path[path] = now; !now {
		delete(k.path, path)
	}
	return was
}

// Ensure implements Cgroups.
func (c timed) Ensure(name pod.CgroupName, values cgroup.Values) error {
	operation := "create"
	if c.known.note(name.Path(c.driver), true) {
		operation = "update"
	} else if c.Exists(name) { // of an earlier life, perhaps
		operation = "update"
	}
	defer c.observe(operation, c.now())
	err := c.Cgroups.Ensure(name, values)
	if err != nil && operation == "create" {
		c.known.note(name.Path(c.driver), false)
	}
	return err
}

// Remove implements Cgroups.
func (c timed) Remove(name pod.CgroupName) error {
	defer c.observe("destroy", c.now())
	c.known.note(name.Path(c.driver), false)
	return c.Cgroups.Remove(name)
}

func (c timed) observe(operation string, began time.Time) {
	c.m.cgroupDuration.WithLabelValues(operation).Observe(c.now().Sub(began).Seconds())
}
