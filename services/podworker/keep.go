// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// keep writes the facts to the journal: new decisions before anything is done
// about them, everything else beside the work. False means that the decisions
// could not be written.
func (w *worker) keep(ctx context.Context, plan *step.Plan) bool {
	if plan.Facts.State == step.Pending {
		return true
	}
	if w.durable.has(plan.Facts, w.spec.id) {
		w.durable.retryAt = time.Time{}
		return true
	}
	record := journal.Record{Facts: plan.Facts, Source: w.spec.source, Pod: w.spec.packed}
	if id := w.spec.identity; id != nil {
		record.Namespace, record.Name = id.Namespace, id.Name
	}
	facts, err := json.Marshal(plan.Facts)
	if err != nil {
		w.l.log.Error("facts do not marshal", service.KeyUID, string(w.uid), service.KeyError, err.Error())
		return false
	}
	j := &w.durable
	text := fmt.Sprintf("%s %d", facts, w.spec.id) // the pod itself is long
	if text == j.text {
		j.facts, j.spec, j.retryAt = plan.Facts, w.spec.id, time.Time{}
		return true
	}
	if !plan.Decides(j.facts) {
		w.keepBeside(record, text)
		return true
	}
	if w.l.clock.Now().Before(j.retryAt) {
		return false
	}
	j.await()
	err = fault.Hit(ctx, "podworker.journal")
	if err == nil {
		err = w.l.journal.Save(w.uid, record)
	}
	if err == nil {
		err = fault.Hit(ctx, "podworker.journaled")
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		j.failures++
		j.retryAt = w.l.clock.Now().Add(retryPeriod)
		if j.failures == 1 {
			w.l.log.Error("journal cannot be written: the pod stands still", service.KeyUID, string(w.uid), service.KeyError, err.Error())
		}
		plan.Wait = &step.Wait{Owner: "podworker", Step: "journal", Message: err.Error(), Since: w.l.clock.Now()}
		w.publish(ctx, plan)
		return false
	}
	j.retryAt, j.failures = time.Time{}, 0
	j.facts, j.text, j.spec = plan.Facts, text, w.spec.id
	return true
}

// keepBeside writes the record beside the work, the newest when one is done.
func (w *worker) keepBeside(record journal.Record, text string) {
	j := &w.durable
	if j.beside != nil || w.l.clock.Now().Before(j.retryAt) {
		return // comes round again
	}
	done, spec := make(chan struct{}), w.spec.id
	j.beside = done
	go func() {
		err := w.l.journal.Save(w.uid, record)
		close(done)
		w.post(func() {
			if j.beside != done {
				return // a decision was written since
			}
			j.beside, j.retryAt = nil, time.Time{}
			if err != nil {
				j.retryAt = w.l.clock.Now().Add(retryPeriod)
				return
			}
			j.facts, j.text, j.spec = record.Facts, text, spec
		})
	}()
}
