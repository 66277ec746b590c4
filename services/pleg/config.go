// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"time"
)

// Config is how eagerly to look. Zero values take the defaults.
type Config struct {
	// Relist is the period of the safety net while the runtime sends no events
	// (kubelet: generic PLEG, 1 s).
	Relist time.Duration
	// RelistWithEvents is the same while it does (kubelet: evented PLEG, 300 s;
	// ours is shorter, for a missed event otherwise lasts as long).
	RelistWithEvents time.Duration
	// Status is the period of the runtime's own status (kubelet: 5 s).
	Status time.Duration
	// Call bounds one question to the runtime about one pod.
	Call time.Duration
	// Settle is how long a reading may wait after an event of something made or
	// removed. That is podworker's doing, which asks by itself, and one reading is
	// enough. What has stopped is read at once.
	Settle time.Duration
	// SecondLook is how long after the first reading of a failed container the pod is read
	// again. containerd may report the exit first, and only later, without an event, that
	// the container was OOM-killed.
	SecondLook time.Duration
	// Parallel bounds how many pods a relist reads at once, and four times that how many
	// are read at once in all.
	Parallel int
}

func (c Config) withDefaults() Config {
	c.Relist = cmp.Or(c.Relist, time.Second)
	c.RelistWithEvents = cmp.Or(c.RelistWithEvents, time.Minute)
	c.Status = cmp.Or(c.Status, 5*time.Second)
	c.Call = cmp.Or(c.Call, 30*time.Second)
	c.Settle = cmp.Or(c.Settle, 50*time.Millisecond)
	c.SecondLook = cmp.Or(c.SecondLook, 3*time.Second)
	c.Parallel = cmp.Or(c.Parallel, 8)
	return c
}
