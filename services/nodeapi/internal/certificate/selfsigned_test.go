// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"testing"
	"time"
)

// TestBeating: the watchdog hears of work that takes long while it lasts.
func TestBeating(t *testing.T) {
	beats := make(chan struct{}, 1)
	beat := func() {
		select {
		case beats <- struct{}{}:
		default:
		}
	}
	heard := 0
	beating(beat, time.Millisecond, func() {
		for range 3 {
			select {
			case <-beats:
				heard++
			case <-time.After(time.Minute):
				return
			}
		}
	})
	if heard != 3 {
		t.Errorf("%d beats while it worked", heard)
	}
}
