// SPDX-License-Identifier: Apache-2.0

package config

import (
	"sync"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// configuration is the one in force.
type configuration struct {
	mu         sync.Mutex
	current    *kubeletconfig.Config
	encoded    []byte
	generation uint64
	refused    string // why the newest one is not in force, or empty
}

func (c *configuration) get() (current *kubeletconfig.Config, refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.refused
}

// number is the generation in force; 0 before the first.
func (c *configuration) number() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}
