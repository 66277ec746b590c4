// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sextant-node/sextant/services/volume/internal/claim"
)

// TestDue: each driver is asked in its period, the first time after one; a period that
// changes counts from the last time.
func TestDue(t *testing.T) {
	const s = time.Second
	asked := map[string]time.Time{}
	for _, step := range []struct {
		at      time.Duration
		periods map[string]time.Duration
		due     []string
		wait    time.Duration
	}{
		{0, nil, nil, idle},
		{0, map[string]time.Duration{"a": 10 * s}, nil, 10 * s},
		{4 * s, map[string]time.Duration{"a": 10 * s, "b": 60 * s}, nil, 6 * s},
		{10 * s, map[string]time.Duration{"a": 10 * s, "b": 60 * s}, []string{"a"}, 10 * s},
		{15 * s, map[string]time.Duration{"a": 30 * s, "b": 60 * s}, nil, 25 * s},
		{64 * s, map[string]time.Duration{"a": 30 * s, "b": 60 * s}, []string{"a", "b"}, 30 * s},
		{65 * s, map[string]time.Duration{"b": 60 * s}, nil, 59 * s},
		{200 * s, map[string]time.Duration{"a": 30 * s}, nil, 30 * s},
	} {
		due, wait := Due(time.Unix(0, 0).Add(step.at), step.periods, asked)
		if !slices.Equal(due, step.due) || wait != step.wait {
			t.Errorf("at %s: due %v, wait %s; want %v, %s", step.at, due, wait, step.due, step.wait)
		}
	}
}

// TestExhausted: an attachment that failed for want of room is another case than one that
// is under way, if the driver wants that.
func TestExhausted(t *testing.T) {
	code, other, period := int32(codes.ResourceExhausted), int32(codes.Internal), int64(60)
	src := &claim.Source{Volume: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example", VolumeHandle: "vol-1"}},
	}}}
	driver := func(p *int64) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: p}}
	}
	attachment := func(code *int32) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no slot left", ErrorCode: code}}}
	}
	const name = "kubernetes.io/csi/csi.example^vol-1"
	node := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{name}}}
	for _, tc := range []struct {
		name  string
		given given
		full  bool
	}{
		{"no room", given{driver: driver(&period), attachment: attachment(&code), node: node}, true},
		{"another error", given{driver: driver(&period), attachment: attachment(&other), node: node}, false},
		{"an error without a code", given{driver: driver(&period), attachment: attachment(nil), node: node}, false},
		{"the driver wants no updates", given{driver: driver(nil), attachment: attachment(&code), node: node}, false},
		{"no attachment yet", given{driver: driver(&period), node: node}, false},
		{"no driver object", given{attachment: attachment(&code), node: node}, false},
	} {
		_, err := Attached(name, src, &tc.given)
		var full *Exhausted
		var wait *Wait
		if got := errors.As(err, &full); got != tc.full || !got && !errors.As(err, &wait) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if full != nil && (full.Driver != "csi.example" || full.Message != "no slot left") {
			t.Errorf("%s: %+v", tc.name, full)
		}
	}
}
