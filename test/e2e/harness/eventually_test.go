// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestEventually(t *testing.T) {
	looks := 0
	if err := eventually(t.Context(), 5*time.Second, func(context.Context) error {
		if looks++; looks < 3 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || looks != 3 {
		t.Errorf("after %d looks: %v", looks, err)
	}

	cause := errors.New("the door is shut")
	err := eventually(t.Context(), 20*time.Millisecond, func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err() // as a call does that ran out of time
		}
		return cause
	})
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "not within") {
		t.Errorf("the last error is lost: %v", err)
	}
}
