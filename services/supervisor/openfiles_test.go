// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// limited says that a process is the one that limits itself, for good.
const limited = "SEXTANT_TEST_OPEN_FILES"

// TestLimitOpenFiles: what is started afterwards has the limit, and cannot raise it.
func TestLimitOpenFiles(t *testing.T) {
	if os.Getenv(limited) != "" {
		if err := LimitOpenFiles(321); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", "ulimit -Sn; ulimit -Hn")
		cmd.Stdout = os.Stdout
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestLimitOpenFiles$")
	cmd.Env = append(os.Environ(), limited+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "321\n321\n") {
		t.Errorf("soft and hard limits %q, %v", out, err)
	}
}
