// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// GenerationOf is the generation of a configuration; 0 for none.
func GenerationOf(c *Config) uint64 {
	if c == nil {
		return 0
	}
	return c.Generation
}

// Decode reads an item of the feed config.kubelet; the error of a configuration
// that is of no use names its generation.
func Decode(_ string, m *configv1.KubeletConfig) (*Config, error) {
	c, err := Unmarshal(m.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", m.GetGeneration(), err)
	}
	c.Generation = m.GetGeneration()
	return c, nil
}
