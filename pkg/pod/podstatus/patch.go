// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Patch is the strategic merge patch for the status subresource that turns old, the
// status at the API server, into new. It carries the UID, so that it fails on a
// namesake of the pod instead of changing it. It is nil when nothing changes.
//
// For a static pod uid is that of the mirror pod. Conditions that others added meanwhile
// survive: conditions merge by type, and only those of old that new lacks are deleted.
func Patch(uid types.UID, old, new *v1.PodStatus) ([]byte, error) {
	if Equal(old, new) {
		return nil, nil
	}
	before, err := json.Marshal(v1.Pod{Status: *old})
	if err != nil {
		return nil, fmt.Errorf("pod status patch: old status: %w", err)
	}
	after, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *new})
	if err != nil {
		return nil, fmt.Errorf("pod status patch: new status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("pod status patch: %w", err)
	}
	return patch, nil
}

// Equal reports whether two statuses mean the same: the order of conditions, the
// difference between nil and empty, fractions of seconds and the way a quantity is
// written do not count.
func Equal(a, b *v1.PodStatus) bool {
	if a == b {
		return true
	}
	if differ(a, b) {
		return false
	}
	a, b = canonical(a), canonical(b)
	return sameBytes(a, b) || apiequality.Semantic.DeepEqual(a, b)
}

// differ reports whether two statuses differ in what changes most often and is not
// written in more than one way. It is there because comparing all of them takes longer.
func differ(a, b *v1.PodStatus) bool {
	if a.Phase != b.Phase || a.Reason != b.Reason || a.PodIP != b.PodIP || len(a.Conditions) != len(b.Conditions) ||
		len(a.ContainerStatuses) != len(b.ContainerStatuses) || len(a.InitContainerStatuses) != len(b.InitContainerStatuses) {
		return true
	}
	for i := range a.ContainerStatuses {
		c, d := &a.ContainerStatuses[i], &b.ContainerStatuses[i]
		if c.Ready != d.Ready || c.RestartCount != d.RestartCount || c.ContainerID != d.ContainerID ||
			(c.State.Running == nil) != (d.State.Running == nil) || (c.State.Terminated == nil) != (d.State.Terminated == nil) {
			return true
		}
	}
	return false
}

// sameBytes reports whether two statuses are encoded alike. Equal ones need not be.
func sameBytes(a, b *v1.PodStatus) bool {
	before, err := a.Marshal()
	if err != nil {
		return false
	}
	after, err := b.Marshal()
	return err == nil && bytes.Equal(before, after)
}

func canonical(s *v1.PodStatus) *v1.PodStatus {
	s = s.DeepCopy()
	slices.SortStableFunc(s.Conditions, func(a, b v1.PodCondition) int {
		switch {
		case a.Type < b.Type:
			return -1
		case a.Type > b.Type:
			return 1
		}
		return 0
	})
	normalize(&v1.Pod{}, s)
	return s
}
