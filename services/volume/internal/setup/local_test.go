package setup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/services/volume/internal/volumetest"
	"github.com/sextant-node/sextant/test/stallfs"
)

func TestLocal(t *testing.T) {
	a, folder := apart(t, time.Minute), t.TempDir()
	write(t, filepath.Join(folder, "file"), "mine")
	dir := ""
	for range 2 { // again is the same
		var err error
		if dir, err = a.Local("u", setup.Local{Plugin: content.Local, Volume: "v", Name: "pv", Path: folder}); err != nil {
			t.Fatal(err)
		}
	}
	if want := a.Layout.Root + "/pods/u/volumes/kubernetes.io~local-volume/pv"; dir != want || read(t, dir+"/file") != "mine" {
		t.Errorf("at %s, want %s", dir, want)
	}
	if n := len(volumetest.Mounts(t, dir)); n != 1 {
		t.Errorf("%d mounts, want 1", n)
	}
	only, err := a.Local("u", setup.Local{Plugin: content.Local, Volume: "w", Name: "ro", Path: folder, ReadOnly: true, Options: []string{"noatime"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(only, "x"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only one: %v", err)
	}
	write(t, filepath.Join(dir, "x"), "") // the other one is not
	group := int64(2000)
	if _, err := a.Local("u", setup.Local{Plugin: content.Local, Volume: "v", Name: "pv", Path: folder, Group: &group}); err != nil || look(t, folder+"/file") != "0:2000 664" {
		t.Errorf("given to a group: %s, %v", look(t, folder+"/file"), err)
	}
	write(t, folder+"/later", "")
	if _, err := a.Local("u", setup.Local{Plugin: content.Local, Volume: "v", Name: "pv", Path: folder, Group: &group, OnMismatch: true}); err != nil || look(t, folder+"/later") != "0:2000 644" {
		t.Errorf("given on a mismatch only: %s, %v", look(t, folder+"/later"), err)
	}
	for text, l := range map[string]setup.Local{
		"no such file or directory":              {Path: folder + "/none"},
		"is not a directory":                     {Path: folder + "/file"},
		"want an absolute path":                  {Path: folder + "/../x"},
		`"size=1G" is not an option of a folder`: {Path: folder, Options: []string{"size=1G"}},
	} {
		l.Name = "bad"
		if _, err := a.Local("u", l); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
	claimed := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}
	if path, ok := a.Standing(newPod(nil), claimed); !ok || path != dir {
		t.Errorf("stands: %s, %v", path, ok)
	}
	claimed.Name = "never"
	if path, ok := a.Standing(newPod(nil), claimed); ok {
		t.Errorf("one that was never made stands at %s", path)
	}
	if err := a.Remove("u"); err != nil {
		t.Error(err)
	}
	if read(t, filepath.Join(folder, "file")) != "mine" {
		t.Error("removal went through the mount")
	}
	if left := volumetest.Mounts(t, a.Layout.Root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

func TestLocalOnWhatHangs(t *testing.T) {
	a, dead := apart(t, 2*time.Second), stallfs.Mount(t)
	dead.Stall()
	var stuck *child.Stuck
	if _, err := a.Local("u", setup.Local{Plugin: content.Local, Volume: "v", Name: "pv", Path: filepath.Join(dead.Dir, "folder")}); !errors.As(err, &stuck) {
		t.Errorf("%v", err)
	}
}
