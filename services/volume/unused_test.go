// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestUnusedVolumes: what no container mounts is not made, and keeps no pod waiting, until an
// ephemeral container mounts it. What was made once stays as long as the pod.
func TestUnusedVolumes(t *testing.T) {
	r := newRig(t, nil)
	p := of(t, "u", "- {name: e, emptyDir: {}}\n- {name: missing, hostPath: {path: /no/such/folder, type: Directory}}\n- {name: later, emptyDir: {}}")
	p.Spec.Containers = []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/e"}}}}
	r.declareAsIs(p)
	r.ready("u")
	if item, _ := r.pods.Get("u"); len(item.GetVolumes()) != 1 {
		t.Errorf("volumes %v, want e alone", item.GetVolumes())
	}
	later := r.path("u", "empty-dir", "later")
	if _, err := os.Lstat(later); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unused volume: %v", err)
	}
	r.stop()
	r.start(nil)
	r.ready("u")
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "debug", VolumeMounts: []v1.VolumeMount{{Name: "later", MountPath: "/later"}},
	}}}
	r.declareAsIs(p) // and has seen the answer's revision
	if item, _ := r.pods.Get("u"); len(item.GetVolumes()) != 2 {
		t.Errorf("the answer's revision has the volumes %v, want that of the ephemeral container too", item.GetVolumes())
	}
	r.ready("u")
	if _, err := os.Lstat(later); err != nil {
		t.Errorf("the volume of the ephemeral container: %v", err)
	}
	r.withdraw("u")
	r.gone("u")
	if _, err := os.Lstat(later); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}
