package volume_test

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/volumetest"
)

// TestALocalVolume: a claim whose volume is a folder of this node. What is in it
// outlives the pod.
func TestALocalVolume(t *testing.T) {
	r, folder := newRig(t, nil), t.TempDir()
	r.write(filepath.Join(folder, "data"), "precious")
	r.localDisk("data", "disk-1", folder)
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
