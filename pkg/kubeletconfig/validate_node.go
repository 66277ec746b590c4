// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nodeStatus checks heartbeats and registration.
func (v *validator) nodeStatus() {
	k := v.k
	v.positive("nodeStatusUpdateFrequency", k.NodeStatusUpdateFrequency.Duration)
	v.positive("nodeStatusReportFrequency", k.NodeStatusReportFrequency.Duration)
	if k.NodeLeaseDurationSeconds <= 0 {
		v.invalid(at("nodeLeaseDurationSeconds"), k.NodeLeaseDurationSeconds, "must be greater than zero")
	}
	if *k.NodeStatusMaxImages < -1 {
		v.invalid(at("nodeStatusMaxImages"), *k.NodeStatusMaxImages, "must be -1 (no limit) or greater")
	}
	type id struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[id]bool{}
	for i, taint := range k.RegisterWithTaints {
		p := at("registerWithTaints").Index(i)
		v.taint(p, taint)
		if n := (id{taint.Key, taint.Effect}); seen[n] {
			v.errs = append(v.errs, field.Duplicate(p, taint.Key+":"+string(taint.Effect)))
		} else {
			seen[n] = true
		}
	}
}

// taint checks one taint as the API server will when the Node is created.
func (v *validator) taint(p *field.Path, taint corev1.Taint) {
	if msgs := validation.IsQualifiedName(taint.Key); len(msgs) > 0 {
		v.invalid(p.Child("key"), taint.Key, "%s", strings.Join(msgs, "; "))
	}
	if msgs := validation.IsValidLabelValue(taint.Value); len(msgs) > 0 {
		v.invalid(p.Child("value"), taint.Value, "%s", strings.Join(msgs, "; "))
	}
	switch taint.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	case "":
		v.required(p.Child("effect"), "must be NoSchedule, PreferNoSchedule or NoExecute")
	default:
		v.errs = append(v.errs, field.NotSupported(p.Child("effect"), taint.Effect,
			[]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
	}
	if taint.TimeAdded != nil {
		v.forbidden(p.Child("timeAdded"), "is set by the cluster, not by configuration")
	}
}

// usernsUnit is the least number of IDs a pod's user namespace maps, and what
// every number must be a multiple of (KEP-127).
const usernsUnit = 65536

// userNamespaces checks the size of a pod's range of user and group IDs.
func (v *validator) userNamespaces() {
	if v.k.UserNamespaces == nil || v.k.UserNamespaces.IDsPerPod == nil {
		return
	}
	p, ids := at("userNamespaces.idsPerPod"), *v.k.UserNamespaces.IDsPerPod
	switch {
	case ids < usernsUnit:
		v.invalid(p, ids, "must be at least %d", usernsUnit)
	case ids%usernsUnit != 0:
		v.invalid(p, ids, "must be a multiple of %d", usernsUnit)
	case ids > math.MaxUint32:
		v.invalid(p, ids, "must be at most %d", int64(math.MaxUint32))
	}
}
