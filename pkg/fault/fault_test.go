// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"context"
	"testing"

	"github.com/sextant-node/sextant/pkg/fault"
)

func set(t *testing.T, text string) {
	t.Helper()
	if err := fault.Set(text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fault.Set("") })
}

func TestTermsInOrder(t *testing.T) {
	set(t, "a=1*off->2*error(no)->1*error(last); b=error(always)")
	want := []string{"", "fault a: no", "fault a: no", "fault a: last", "", ""}
	for i, text := range want {
		got := ""
		if err := fault.Hit(t.Context(), "a"); err != nil {
			got = err.Error()
		}
		if got != text {
			t.Errorf("hit %d: %q, want %q", i, got, text)
		}
	}
	if n := fault.Caught("a"); n != 4 {
		t.Errorf("%d hits met a fault, want 4", n)
	}
	for range 3 {
		if fault.Hit(t.Context(), "b") == nil {
			t.Error("a term without a count ended")
		}
	}
	if err := fault.Hit(t.Context(), "c"); err != nil {
		t.Errorf("a point without a fault: %v", err)
	}
}

func TestPauseAndPanic(t *testing.T) {
	set(t, "p=pause;q=panic(boom)")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if fault.Hit(ctx, "p") == nil {
		t.Error("pause did not tell that the context ended")
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = fault.Hit(t.Context(), "q")
}

func TestBadTexts(t *testing.T) {
	for _, text := range []string{"a", "a=", "a=boom", "a=x*error(y)", "a=0*off", "a=error(x", "a=off->"} {
		if fault.Set(text) == nil {
			t.Errorf("%q was taken", text)
		}
	}
	t.Setenv(fault.Env, "a=boom")
	if fault.FromEnv() == nil {
		t.Error("a bad environment was taken")
	}
}
