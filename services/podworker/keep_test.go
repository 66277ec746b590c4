// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// TestDecisionOutlivesTheWriteBesideIt: a record that is written beside the work is
// older than the decision of the next round, and must not be what the disk ends with.
func TestDecisionOutlivesTheWriteBesideIt(t *testing.T) {
	j, _, err := journal.Open(store.Config{Path: filepath.Join(t.TempDir(), journal.FileName), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	l := newLedger(loopDeps{journal: j, clock: clocktesting.NewFakeClock(time.Now()), log: slog.New(slog.DiscardHandler)})
	for range 20 { // whether the older one comes last is chance
		w := &worker{mailbox: newMailbox(), l: l, uid: "u", spec: specification{source: "api", identity: &v1.Pod{}}}
		keep := func(facts step.Facts) {
			t.Helper()
			if !w.keep(context.Background(), &step.Plan{Facts: facts}) {
				t.Fatal("not kept")
			}
		}
		facts := step.Facts{State: step.Syncing, Admitted: &step.Admission{}}
		keep(facts)
		facts.Containers = map[string]step.Container{"c": {Instances: 1}} // no decision
		keep(facts)
		facts.State, facts.Termination = step.Terminating, &step.Termination{Cause: step.Evicted, Grace: time.Second}
		keep(facts)
		<-w.wake // the write beside the work has ended
		for _, f := range w.take() {
			f()
		}
		all, err := j.All()
		if err != nil {
			t.Fatal(err)
		}
		if got := all["u"].Facts.State; got != step.Terminating {
			t.Fatalf("the disk says %s after the decision to end the pod", got)
		}
		if got := w.durable.facts.State; got != step.Terminating {
			t.Fatalf("the worker takes %s for what is on the disk", got)
		}
	}
}
