// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnvFile: an env file is read from its beginning, or not at all.
func TestEnvFile(t *testing.T) {
	dir := t.TempDir()
	files := envFiles{"v": {HostPath: dir}}
	for size, want := range map[int]string{100: "", maxEnvFile: "", maxEnvFile + 1: "longer than 1048576 bytes", 2 * maxEnvFile: "longer than 1048576 bytes"} {
		content := "K='v'\n" + strings.Repeat("#", size-6)
		if err := os.WriteFile(filepath.Join(dir, "env"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := files.EnvFile("v", "env")
		switch {
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%d bytes: %d read, %v", size, len(got), err)
		case want == "" && (err != nil || string(got) != content):
			t.Errorf("%d bytes: %d read, %v", size, len(got), err)
		}
	}
}
