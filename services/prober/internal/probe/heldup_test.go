// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// TestHeldUp: a process that was stopped in the middle of a probe has not learnt
// anything of the container, unless it is well.
func TestHeldUp(t *testing.T) {
	for _, tt := range []struct {
		result, want schedule.Result
		took         time.Duration
	}{
		{schedule.Failure, schedule.Failure, time.Second},
		{schedule.Failure, schedule.Failure, 2 * time.Second}, // a busy machine
		{schedule.Failure, schedule.Unknown, 30 * time.Second},
		{schedule.Success, schedule.Success, 30 * time.Second},
	} {
		if got := heldUp(Outcome{Result: tt.result}, tt.took, time.Second).Result; got != tt.want {
			t.Errorf("%v after %s is %v, want %v", tt.result, tt.took, got, tt.want)
		}
	}
}
