// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"sync"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// currentConfig is the effective configuration, which may change at any time.
type currentConfig struct {
	// known is closed when there is one.
	known chan struct{}

	mu     sync.Mutex
	config *kubeletconfig.Config
}

func newCurrentConfig() *currentConfig { return &currentConfig{known: make(chan struct{})} }

// Config is the configuration, nil until it is known.
func (c *currentConfig) Config() *kubeletconfig.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config
}

func (c *currentConfig) set(config *kubeletconfig.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config == nil {
		close(c.known)
	}
	c.config = config
}
