// SPDX-License-Identifier: Apache-2.0

package stallfs

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNoChildHasTheDevice: a process that waits for an answer does not keep alive what it waits for.
func TestNoChildHasTheDevice(t *testing.T) {
	Mount(t)
	Mount(t)
	out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "/dev/fuse") {
		t.Errorf("a child inherits the device:\n%s", out)
	}
}
