package volume_test

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/volume/internal/volumetest"
	"github.com/sextant-node/sextant/test/standin"
)

// TestALocalVolume: a claim whose volume is a folder of this node. What is in it
// outlives the pod.
func TestALocalVolume(t *testing.T) {
	r, folder := newRig(t, nil), t.TempDir()
	r.write(filepath.Join(folder, "data"), "precious")
	claim := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "disk-1"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	claim.Namespace, claim.Name, claim.UID = "ns", "data", "claim-1"
	disk := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
		ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: "data", UID: "claim-1"},
		PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: folder}},
	}}
	disk.Name = "disk-1"
	for key, object := range map[string]interface{ Marshal() ([]byte, error) }{"PersistentVolumeClaim/ns/data": claim, "PersistentVolume//disk-1": disk} {
		data, err := object.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		standin.Set(r.House, r.objects, key, &configv1.Object{Object: data})
	}
	p := of(t, "u", `- {name: data, persistentVolumeClaim: {claimName: data}}`)
	group := int64(2000)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	r.declare(p)
	r.ready("u")
	path := r.path("u", "local-volume", "disk-1")
	if got := r.volume("u", "data").GetHostPath(); got != path || r.read(filepath.Join(path, "data")) != "precious" {
		t.Errorf("mounted at %s, want %s", got, path)
	}
	if info, err := os.Stat(filepath.Join(folder, "data")); err != nil || info.Mode().Perm() != 0o664 {
		t.Errorf("fsGroup: %v, %v", info.Mode(), err)
	}
	r.stop()
	r.start(nil)
	r.ready("u")
	if n := len(volumetest.Mounts(t, path)); n != 1 {
		t.Errorf("%d mounts after a restart, want 1", n)
	}
	r.withdraw("u")
	r.gone("u")
	if left := volumetest.Mounts(t, r.root); len(left) > 0 || r.read(filepath.Join(folder, "data")) != "precious" {
		t.Errorf("mounts left: %v", left)
	}
}
