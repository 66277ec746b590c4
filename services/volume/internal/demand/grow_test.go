// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestGrow(t *testing.T) {
	const pending, progress = v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress
	size := func(text string) v1.ResourceList {
		if text == "" {
			return nil
		}
		return v1.ResourceList{v1.ResourceStorage: resource.MustParse(text)}
	}
	for name, tt := range map[string]struct {
		had, allocated string
		state          v1.ClaimResourceStatus
		mode           v1.PersistentVolumeAccessMode
		note, readOnly bool
		want           Growth
	}{
		"nothing is known yet":                 {},
		"the node's turn":                      {had: "100", allocated: "200", state: pending, want: Growth{Had: 100, Mark: true}},
		"it says that it goes on":              {had: "100", allocated: "200", state: progress, want: Growth{Had: 100, Size: 200, Tell: true}},
		"the controller's turn":                {had: "100", allocated: "200", state: v1.PersistentVolumeClaimControllerResizeInProgress, want: Growth{Had: 100}},
		"given up":                             {had: "100", allocated: "200", state: v1.PersistentVolumeClaimNodeResizeInfeasible, want: Growth{Had: 100}},
		"the controller has not got there":     {had: "100", allocated: "200", want: Growth{Had: 100}},
		"a controller from before":             {had: "100", want: Growth{Had: 100, Size: 200, Tell: true}},
		"read only":                            {had: "100", state: progress, readOnly: true, want: Growth{Had: 100}},
		"done":                                 {had: "200", want: Growth{Had: 200}},
		"done by another node":                 {had: "200", mode: v1.ReadWriteMany, want: Growth{Had: 200, Size: 200}},
		"done where nodes have nothing to do":  {had: "200", mode: v1.ReadWriteMany, note: true, want: Growth{Had: 200}},
		"as large, but the state is left over": {had: "200", state: progress, want: Growth{Had: 200, Size: 200, Tell: true}},
	} {
		s := source()
		s.ReadOnly = tt.readOnly
		s.Volume.Spec.Capacity = size("200")
		c := s.Claim
		c.Spec.Resources.Requests = size("200")
		c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, tt.mode}
		c.Status.Capacity, c.Status.AllocatedResources = size(tt.had), size(tt.allocated)
		if tt.state != "" {
			c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: tt.state}
		}
		if tt.note {
			c.Annotations = map[string]string{notOnNodes: ""}
		}
		if got := Grow(s); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		if tt.allocated != "" && tt.state != "" { // the volume's own size comes later
			s.Volume.Spec.Capacity = size("100")
			if got := Grow(s); got != tt.want {
				t.Errorf("%s, the volume not read anew: %+v, want %+v", name, got, tt.want)
			}
			s.Volume.Spec.Capacity = size("200")
		}
		c.Spec.Resources.Requests = size("150")
		c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue}}
		tt.want.Moved, tt.want.Failed = true, true
		if got := Grow(s); got != tt.want {
			t.Errorf("%s, moved and failed: %+v, want %+v", name, got, tt.want)
		}
	}
}
