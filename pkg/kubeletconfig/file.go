// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"os"
)

// Host returns the inputs of this machine: its files, the working directory
// and the host name. It is the only part of the package that looks at the
// machine it runs on.
func Host() (Inputs, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Inputs{}, fmt.Errorf("working directory: %w", err)
	}
	name, err := os.Hostname()
	if err != nil {
		return Inputs{}, fmt.Errorf("host name: %w", err)
	}
	return Inputs{Files: os.DirFS("/"), WorkDir: dir, Hostname: name}, nil
}
