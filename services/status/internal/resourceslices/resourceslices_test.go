// SPDX-License-Identifier: Apache-2.0

package resourceslices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// rig is a node with slices, and a sweeper of them.
type rig struct {
	*testing.T
	mu      sync.Mutex
	uid     types.UID
	present []string // nil: not known
	api     []string // drivers with slices
	fails   error
	calls   []string
	sweeper *Sweeper
}

func (r *rig) ResourceSliceDrivers(_ context.Context, node string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "list "+node)
	return slices.Clone(r.api), r.fails
}

func (r *rig) DeleteResourceSlices(_ context.Context, node, driver string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "delete "+node+" "+driver)
	if r.fails == nil {
		r.api = slices.DeleteFunc(r.api, func(d string) bool { return d == driver })
	}
	return r.fails
}

func run(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t}
		r.sweeper = New(Deps{
			API: r, Log: slog.New(slog.DiscardHandler),
			Node: func() (string, types.UID) { r.mu.Lock(); defer r.mu.Unlock(); return "n1", r.uid },
			Present: func() ([]string, bool) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.present, r.present != nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.sweeper.Run(ctx) }()
		synctest.Wait()
		test(r)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// after changes something, waits, and expects calls.
func (r *rig) after(what string, change func(), wait time.Duration, want ...string) {
	r.Helper()
	r.mu.Lock()
	change()
	r.calls = nil
	r.mu.Unlock()
	r.sweeper.Look()
	<-time.After(wait)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, want) {
		r.Errorf("%s: %q, want %q", what, r.calls, want)
	}
}

// TestSlices: those of a driver that is there stay; those of one that is gone go, whether
// it was seen or not.
func TestSlices(t *testing.T) {
	run(t, func(r *rig) {
		r.api = []string{"a", "b", "old"}
		r.after("no Node", func() { r.present = []string{"a"} }, time.Hour)
		r.after("drivers are not known", func() { r.uid, r.present = "u", nil }, time.Hour)
		r.after("known", func() { r.present = []string{"a", "b"} }, time.Hour, "list n1", "delete n1 old")
		r.after("the same", func() {}, time.Hour)
		r.after("one more", func() { r.present = []string{"a", "b", "c"}; r.api = append(r.api, "c") }, time.Hour)
		r.after("not known again", func() { r.present = nil }, time.Hour)
		r.after("two went meanwhile", func() { r.present = []string{"b"} }, time.Hour, "list n1", "delete n1 a", "delete n1 c")
		r.after("the last went", func() { r.present = []string{} }, time.Hour, "list n1", "delete n1 b")
		r.after("none", func() {}, time.Hour)
	})
}

// TestFailures are tried again until they are none, and a driver that came back meanwhile
// keeps its slices.
func TestFailures(t *testing.T) {
	run(t, func(r *rig) {
		r.api = []string{"a"}
		r.after("away", func() { r.uid, r.present, r.fails = "u", []string{}, errors.New("refused") }, 0, "list n1")
		<-time.After(10 * time.Minute)
		synctest.Wait()
		r.mu.Lock()
		if n := len(r.calls); n < 5 || n > 20 {
			t.Errorf("%d tries in ten minutes", n)
		}
		r.mu.Unlock()
		r.after("back with the API server", func() { r.fails, r.present = nil, []string{"a"} }, 10*time.Minute, "list n1")
		if fmt.Sprint(r.api) != "[a]" {
			t.Errorf("left: %v", r.api)
		}
	})
	run(t, func(r *rig) {
		without := apierrors.NewNotFound(schema.GroupResource{Resource: "resourceslices"}, "")
		r.after("an API server without them", func() { r.uid, r.present, r.fails = "u", []string{}, without }, time.Hour, "list n1")
	})
}
