// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/status/internal/plan"
)

// ObjectOf is what matters of a pod as the API server has it; nil for nil.
func ObjectOf(p *v1.Pod) *plan.Object {
	if p == nil {
		return nil
	}
	// Resource versions of one resource are decimal and grow (KEP-5504); one that is
	// not counts as the oldest.
	version, err := strconv.ParseUint(p.ResourceVersion, 10, 64)
	if err != nil {
		version = 0
	}
	return &plan.Object{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, Version: version,
		Status: &p.Status, Deleting: p.DeletionTimestamp != nil,
		Mirror: p.Annotations[pod.ConfigMirrorAnnotation],
	}
}

// Apart is ObjectOf for what is kept: the rest of the pod is not kept with its status.
func Apart(p *v1.Pod) *plan.Object {
	o := ObjectOf(p)
	if o != nil {
		o.Status = new(p.Status)
	}
	return o
}

// due reports whether a write is due now, or when the next one will be.
func (d *Desk) due() (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	var next time.Time
	for _, e := range d.pending {
		if e.busy {
			continue
		}
		due := e.due()
		if !due.After(now) {
			return 0, true
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	if next.IsZero() {
		return 0, false
	}
	return next.Sub(now), false
}
