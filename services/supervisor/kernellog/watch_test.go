// SPDX-License-Identifier: Apache-2.0

package kernellog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/supervisor/kernellog"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

// TestWatch: a process of a cgroup that the kernel kills is reported once, with its
// cgroup and time, also to a watch that begins later; and not to one that begins after it.
func TestWatch(t *testing.T) {
	began := time.Now()
	path, pid := cgrouptest.Starved(t)
	enough := errors.New("enough")
	watch := func(from uint64) (kill kernellog.Kill, at time.Time, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		err = kernellog.Watch(ctx, from, func(k kernellog.Kill, when time.Time) error {
			if k.PID != pid || k.Cgroup != path {
				return nil
			}
			kill, at = k, when
			return enough
		})
		return kill, at, err
	}
	kill, at, err := watch(0)
	if !errors.Is(err, enough) || kill.Scope != kernellog.Group || kill.Limit != path || kill.Process != "tail" {
		t.Fatalf("%+v, %v", kill, err)
	}
	if at.Before(began.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("killed at %v, after %v", at, began)
	}
	if again, _, err := watch(kill.Sequence); !errors.Is(err, enough) || again != kill {
		t.Errorf("from the kill on: %+v, %v", again, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	later := make(chan error, 1)
	go func() {
		later <- kernellog.Watch(ctx, kill.Sequence+1, func(k kernellog.Kill, _ time.Time) error {
			if k.Sequence <= kill.Sequence {
				return fmt.Errorf("an earlier kill: %+v", k)
			}
			cancel()
			return nil
		})
	}()
	t.Run("again", func(t *testing.T) { cgrouptest.Starved(t) }) // what the later watch ends with
	if err := <-later; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
