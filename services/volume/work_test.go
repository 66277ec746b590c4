// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
)

// TestAFailureIsToldAgain: at once when it is another, else each reminder.
func TestAFailureIsToldAgain(t *testing.T) {
	w, now := &volumeWork{}, time.Unix(1000, 0)
	for _, step := range []struct {
		after   time.Duration
		text    string
		reports bool
	}{
		{0, "a", true},
		{time.Second, "a", false},
		{time.Second, "b", true},
		{pod.EventReminder - time.Second, "b", false},
		{time.Second, "b", true},
		{time.Minute, "b", false},
	} {
		now = now.Add(step.after)
		if got := w.reports(step.text, now); got != step.reports {
			t.Errorf("%s, %s later: %v, want %v", step.text, step.after, got, step.reports)
		}
	}
}
