// SPDX-License-Identifier: Apache-2.0

package setup_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/stallfs"
	"github.com/sextant-node/sextant/test/volumetest"
)

func apart(t *testing.T, limit time.Duration) setup.Apart {
	h := host(t)
	children := child.NewPool(child.Config{Command: volumetest.Command(h.Layout.Root), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(children.Close)
	return setup.Apart{Host: h, Children: children, Limit: limit}
}

func hostPath(path string, kind v1.HostPathType) *v1.Volume {
	return &v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// TestApart does in children what Host does: the same results.
func TestApart(t *testing.T) {
	a, f := apart(t, time.Minute), stallfs.Mount(t)
	folder := filepath.Join(f.Dir, "folder")
	if path, err := a.HostPath(hostPath(folder, v1.HostPathDirectory)); err != nil || path != folder {
		t.Errorf("hostPath: %s, %v", path, err)
	}
	if _, err := a.HostPath(hostPath(folder, v1.HostPathFile)); err == nil || err.Error() != "hostPath type check failed: "+folder+" is not a file" {
		t.Errorf("hostPath of the wrong type: %v", err)
	}
	target, err := a.Subpath("u", "h", "c", 0, f.Dir, "file")
	if err != nil || read(t, target) != "still here" {
		t.Errorf("subPath: %s, %v", target, err)
	}
	if r, err := a.Measure(f.Dir); err != nil || r.Source != measure.StatFS || r.Capacity != 4<<20 {
		t.Errorf("measured %+v, %v", r, err)
	}
	p, v := newPod(nil), emptyDir("")
	dir, err := a.EmptyDir(p, v, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := a.Measure(dir); err != nil || r.Source != measure.Du || r.InodesIn != 1 {
		t.Errorf("measured %+v, %v", r, err)
	}
	if err := a.Remove("u"); err != nil {
		t.Error(err)
	}
	if left := volumetest.Mounts(t, a.Layout.Root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if text := read(t, filepath.Join(f.Dir, "file")); text != "still here" {
		t.Errorf("behind the mount: %q", text)
	}
	if err := a.Remove("never"); err != nil {
		t.Error(err)
	}
}

// TestApartOfWhatHangs: a file system that stops answering is an error for those
// who need it, and nothing for the others: neither what stands on it nor the
// removal of a pod that has it mounted waits for an answer.
func TestApartOfWhatHangs(t *testing.T) {
	a := apart(t, 2*time.Second)
	p, on, in := newPod(nil), emptyDir(""), emptyDir("")
	on.Name, in.Name = "on", "in"
	onDir, err := a.EmptyDir(p, on, 0)
	if err != nil {
		t.Fatal(err)
	}
	inDir, err := a.EmptyDir(p, in, 0)
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(inDir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	elsewhere, over, within := stallfs.Mount(t), stallfs.MountAt(t, onDir), stallfs.MountAt(t, inner)
	if _, err := a.Subpath("u", "h", "c", 0, elsewhere.Dir, "folder"); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*stallfs.FS{elsewhere, over, within} {
		f.Stall()
	}
	folder := filepath.Join(elsewhere.Dir, "folder")
	for what, step := range map[string]func() error{
		"hostPath":                 func() error { _, err := a.HostPath(hostPath(folder, v1.HostPathDirectory)); return err },
		"subPath":                  func() error { _, err := a.Subpath("u", "h", "c", 1, elsewhere.Dir, "folder"); return err },
		"measure":                  func() error { _, err := a.Measure(elsewhere.Dir); return err },
		"measure what holds mount": func() error { _, err := a.Measure(inDir); return err },
	} {
		var stuck *child.Stuck
		if err := step(); !errors.As(err, &stuck) {
			t.Errorf("%s: %v, want stuck", what, err)
		}
	}
	if path, err := a.HostPath(&v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: folder}}}); err != nil || path != folder {
		t.Errorf("a hostPath that is not looked at: %s, %v", path, err)
	}
	for _, v := range []*v1.Volume{on, in} {
		if _, ok := a.StandingEmptyDir(p, v); !ok {
			t.Errorf("%s does not stand", v.Name)
		}
		if _, err := a.EmptyDir(p, v, 0); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
	if found, err := a.Found(); err != nil || len(found["u"]) != 2 {
		t.Errorf("found %v, %v", found, err)
	}
	if err := a.Remove("u"); err != nil {
		t.Errorf("removal: %v", err)
	}
	if left := volumetest.Mounts(t, a.Layout.Root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if _, err := os.Lstat(a.Layout.Volumes("u")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}
