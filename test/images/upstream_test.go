// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestUpstream(t *testing.T) {
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "nonewprivs"), []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Builder{Source: "."}
	for ref, user := range map[string]string{"example.test/e2e/busybox:1": "", "example.test/nonroot:1.4": "1234", "nonewprivs:1": ""} {
		img, err := b.Upstream(t.Context(), ref, programs)
		if err != nil {
			t.Fatal(err)
		}
		c, err := img.ConfigFile()
		if err != nil || c.Config.User != user {
			t.Errorf("%s runs as %q (%v), want %q", ref, c.Config.User, err, user)
		}
	}
	if _, err := b.Upstream(t.Context(), "example.test/perl:1", programs); !errors.Is(err, ErrUnknown) {
		t.Errorf("an image that cannot be made: %v", err)
	}
	if _, err := b.Upstream(t.Context(), "agnhost:2", programs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is missing: %v", err)
	}
}
