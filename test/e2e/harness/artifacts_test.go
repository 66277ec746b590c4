// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestTrouble(t *testing.T) {
	log := filepath.Join(t.TempDir(), "x.log")
	text := `{"level":"WARN","msg":"1"}
{"level":"INFO","msg":"a warning in words"}
time="now" level=error msg=2
W1123 13:00:00 3
I1123 13:00:00 level of detail
panic: 4
`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{`time="now" level=error msg=2`, "W1123 13:00:00 3", "panic: 4"}
	if got := trouble(log, 3); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestArtifactsOfWhatPassed(t *testing.T) {
	t.Setenv("SEXTANT_ARTIFACTS", "")
	if to, err := Artifacts(t); to != "" || err != nil {
		t.Errorf("a test that passed keeps things in %q, %v", to, err)
	}
	t.Setenv("SEXTANT_ARTIFACTS", "/kept")
	if to, err := Artifacts(t); to != "/kept/TestArtifactsOfWhatPassed" || err != nil {
		t.Errorf("with the variable set: %q, %v", to, err)
	}
}
