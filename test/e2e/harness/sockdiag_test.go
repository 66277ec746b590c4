// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"net"
	"path/filepath"
	"testing"
)

// TestUnixSocketsMissesNone opens more connections than one answer of the
// kernel holds and expects to see the accepted end of each.
func TestUnixSocketsMissesNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const count = 400
	for range count {
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
	}
	all, err := unixSockets()
	if err != nil {
		t.Fatal(err)
	}
	accepted, listening := 0, 0
	for _, s := range all {
		switch {
		case s.path == path && s.peer != 0:
			accepted++
		case s.path == path:
			listening++
		}
	}
	if accepted != count || listening != 1 {
		t.Errorf("%d accepted and %d listening, want %d and 1", accepted, listening, count)
	}
}
