// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
)

func TestRestored(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct{ at, want time.Time }{
		"none":       {},
		"the past":   {now.Add(-time.Hour), now.Add(-time.Hour)},
		"the future": {now.Add(time.Hour), now},
	} {
		got := restored(tc.at.Round(0), now)
		if !got.Equal(tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		if name != "none" && !strings.Contains(got.String(), " m=") { // as String shows it
			t.Errorf("%s: no monotonic time", name)
		}
	}
}

// TestAThresholdThatIsOver is not gone on with after a restart, though the node's condition
// lasts: the grace of a soft one begins again.
func TestAThresholdThatIsOver(t *testing.T) {
	file, _, err := store.Open(store.Config{Path: filepath.Join(t.TempDir(), "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	at := time.Now()
	open := func() *shortages {
		s, err := openShortages(&ledger{file: file}, at)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	h := eviction.History{
		Seen:       map[eviction.Key]time.Time{{Signal: eviction.MemoryAvailable}: at},
		Conditions: map[v1.NodeConditionType]eviction.Condition{v1.NodeMemoryPressure: {Under: true, Since: at, Crossed: at}},
	}
	s := open()
	for _, want := range []int{1, 0} {
		if err := s.keep(at, h); err != nil {
			t.Fatal(err)
		}
		again := open().history(at)
		if len(again.Seen) != want || !again.Conditions[v1.NodeMemoryPressure].Under {
			t.Errorf("of %d thresholds a restart has %+v", want, again)
		}
		at, h.Seen = at.Add(10*time.Second), nil
	}
}
