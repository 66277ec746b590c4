// SPDX-License-Identifier: Apache-2.0

package service

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPSS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "smaps_rollup")
	text := "55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:               55000 kB\nPss:               11000 kB\nPss_Dirty:  9000 kB\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := PSS(file); got != 11000*1024 || err != nil {
		t.Errorf("%v bytes, %v", got, err)
	}
	if got, err := PSS(file + ".none"); err == nil {
		t.Errorf("of no file: %v", got)
	}
	if got, err := PSS("/proc/self/smaps_rollup"); got < 1<<20 || got > 1<<32 || err != nil {
		t.Errorf("this process has %v bytes, %v", got, err)
	}
}
