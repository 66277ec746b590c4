// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAFileThatComesMeanwhile: a file that was not there when it was looked for is not
// written over.
func TestAFileThatComesMeanwhile(t *testing.T) {
	c := Config{Path: filepath.Join(t.TempDir(), "state.db"), Now: time.Now}
	if err := os.WriteFile(c.Path, []byte("of another life"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := c.first(); !errors.Is(o.err, fs.ErrExist) || !o.unread || o.db != nil {
		t.Errorf("%+v", o)
	}
	if data, err := os.ReadFile(c.Path); err != nil || string(data) != "of another life" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := os.Lstat(c.Path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was made is left: %v", err)
	}
	if err := os.Remove(c.Path); err != nil {
		t.Fatal(err)
	}
	o := c.first()
	if o.err != nil || o.unread {
		t.Fatalf("%+v", o)
	}
	if err := o.db.close(); err != nil {
		t.Error(err)
	}
}
