// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/services/volume"
	"github.com/sextant-node/sextant/test/fakeclock"
)

// limit is how many volumes volume says that the driver allows.
func (s *storage) limitOf() int64 {
	item, _ := s.node.Get("node")
	for _, d := range item.GetDrivers() {
		if d.GetName() == s.name {
			return d.GetMaxVolumes()
		}
	}
	return -1
}

// periodic has the CSIDriver ask for its limit to be read again.
func (s *storage) periodic(seconds int64, attached bool) {
	s.Helper()
	s.csiDriver(func(spec *storagev1.CSIDriverSpec) {
		spec.NodeAllocatableUpdatePeriodSeconds, spec.AttachRequired = &seconds, &attached
	})
}

// TestLimitsAreReadAgain: a driver is asked for its limit in the period of its CSIDriver,
// and a restart of the service keeps the newest answer.
func TestLimitsAreReadAgain(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	with := func(d *volume.Deps) { d.Clock = clock }
	s := newStorageWith(t, with, "csi.example")
	if got := s.limitOf(); got != 5 {
		t.Fatalf("a limit of %d", got)
	}
	s.driver.SetMaxVolumes(3)
	s.periodic(30, false)
	began := clock.Now()
	fakeclock.Pass(t, clock, "the new limit", func() bool { return s.limitOf() == 3 })
	// There is no upper bound but Pass's own: it sets the clock forward while the new limit is
	// on its way to this test, more often on a slow machine.
	if took := clock.Since(began); took < 30*time.Second {
		t.Errorf("asked after %s, of a period of 30 s", took)
	}
	s.stop()
	s.start(with)
	s.Eventually("the newest limit after a restart", func() bool { return s.limitOf() == 3 })
}

// TestNoRoomForAVolume: a pod that waits for an attachment which the node has no room for
// is to be rejected, after the time that a kubelet waits; the limit is read again then.
func TestNoRoomForAVolume(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	s := newStorageWith(t, func(d *volume.Deps) { d.Clock = clock }, "csi.example")
	const unique, id = "kubernetes.io/csi/csi.example^vol-1", "csi-c59aa9fdb6e704451dbd837db8aa988fe5ba4a80aaa589eb502c5a10c5b2b9c8"
	s.claim()
	s.periodic(3600, true)
	s.put("Node", "", "n1", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{unique}}})
	code := int32(codes.ResourceExhausted)
	s.put("VolumeAttachment", "", id, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Status:     storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no slot left", ErrorCode: &code}},
	})
	s.driver.SetMaxVolumes(2)
	s.declare(of(t, "u", claimed))
	s.Eventually("the attacher's answer", func() bool { return strings.Contains(s.volume("u", "data").GetError(), "no slot left") })
	began := clock.Now()
	full := func() string {
		item, _ := s.pods.Get("u")
		return item.GetLimitExceeded()
	}
	clock.Step(time.Minute)
	fakeclock.Pass(t, clock, "the pod to be rejected", func() bool { return full() != "" })
	want := "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: no slot left"
	if took := clock.Since(began); full() != want || took < 2*time.Minute || took > 2*time.Minute+30*time.Second {
		t.Errorf("after %s: %q", took, full())
	}
	s.Eventually("the new limit", func() bool { return s.limitOf() == 2 })
	s.withdraw("u")
	s.gone("u")
}
