// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/volumetest"
)

// TestALocalDisk: a claim whose volume is a disk of this node, which containers get as a
// device. It is the same after a restart, and nothing of it is left.
func TestALocalDisk(t *testing.T) {
	r, dir := newRig(t, nil), t.TempDir()
	device, link := filepath.Join(dir, "disk"), filepath.Join(dir, "by-id")
	if err := errors.Join(unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))), os.Symlink(device, link)); err != nil {
		t.Fatal(err)
	}
	block := v1.PersistentVolumeBlock
	r.volumeOf("data", "disk-1", v1.PersistentVolumeSpec{
		VolumeMode: &block, PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: link}},
	})
	p := of(t, "u", "- {name: data, persistentVolumeClaim: {claimName: data}}\n")
	p.Spec.Containers = []v1.Container{{Name: "c", VolumeDevices: []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/xvda"}}}}
	r.declare(p)
	r.ready("u")
	if got := r.volume("u", "data").GetHostPath(); got != device {
		t.Errorf("the device is %s, want %s", got, device)
	}
	// There is no such device: nothing is said of it, least of all how full the folder's file
	// system is.
	if resp, err := r.client.Stats(t.Context(), &volumev1.StatsRequest{}); err != nil || len(resp.GetVolumes()) > 0 {
		t.Errorf("measured: %v, %v", resp, err)
	}
	r.stop()
	r.start(nil)
	r.Eventually("the device after a restart", func() bool { return r.volume("u", "data").GetHostPath() == device })
	r.withdraw("u")
	r.gone("u")
	if left := volumetest.Mounts(t, r.root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// TestALocalVolume: a claim whose volume is a folder of this node. What is in it
// outlives the pod.
func TestALocalVolume(t *testing.T) {
	r, folder := newRig(t, nil), t.TempDir()
	r.write(filepath.Join(folder, "data"), "precious")
	r.localDisk("data", "disk-1", folder)
	r.configMap("cm", map[string]string{"a": "1"})
	p := of(t, "u", "- {name: data, persistentVolumeClaim: {claimName: data}}\n- {name: cm, configMap: {name: cm}}\n")
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
	// A file that a container makes its own stays that, whatever else of the pod changes.
	key := filepath.Join(folder, "key")
	r.write(key, "")
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	r.configMap("cm", map[string]string{"a": "2"})
	r.becomes("the change", r.path("u", "configmap", "cm", "a"), "2")
	r.stop()
	r.start(nil)
	r.configMap("cm", map[string]string{"a": "3"})
	r.becomes("the change after a restart", r.path("u", "configmap", "cm", "a"), "3")
	r.stop() // when all that goes on has come to its end
	r.start(nil)
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key of a running container: %v, %v", info.Mode(), err)
	}
	if n := len(volumetest.Mounts(t, path)); n != 1 {
		t.Errorf("%d mounts after a restart, want 1", n)
	}
	other, group2 := of(t, "other", `- {name: data, persistentVolumeClaim: {claimName: data}}`), int64(3000)
	other.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group2}
	r.declare(other)
	r.ready("other")
	want := "AlreadyMountedVolume ns/other-name: The requested fsGroup is 3000, but the volume disk-1 has GID 2000. The volume may not be shareable."
	r.Eventually("the event", func() bool { return slices.Contains(r.messages(), want) })
	r.withdraw("other")
	r.gone("other")
	r.withdraw("u")
	r.gone("u")
	if left := volumetest.Mounts(t, r.root); len(left) > 0 || r.read(filepath.Join(folder, "data")) != "precious" {
		t.Errorf("mounts left: %v", left)
	}
}
