// SPDX-License-Identifier: Apache-2.0

package setup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
)

// private is a file that a container has made its own, as ssh and Postgres insist on.
func private(t *testing.T, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	write(t, file, "")
	if err := errors.Join(os.Chmod(file, 0o600), os.Lchown(file, 0, 0)); err != nil {
		t.Fatal(err)
	}
	return file
}

// unfinished leaves a pod's local volume as a kill does in the middle of it.
func unfinished(t *testing.T, h *setup.Host, folder string) (dir string) {
	t.Helper()
	dir = bound(t, h, folder)
	mark := filepath.Join(h.Layout.Plugin("u", volumetype.Local), "v", "unfinished")
	if err := os.MkdirAll(filepath.Dir(mark), 0o750); err != nil {
		t.Fatal(err)
	}
	write(t, mark, "")
	return dir
}

// bound leaves it as another agent does.
func bound(t *testing.T, h *setup.Host, folder string) (dir string) {
	t.Helper()
	dir = h.Dir("u", volumetype.Local, "pv")
	if err := errors.Join(os.MkdirAll(dir, 0o750), unix.Mount(folder, dir, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLocalIsGivenOnce: to the pod's group when it is bound, whatever stopped that
// meanwhile, and never again under its containers.
func TestLocalIsGivenOnce(t *testing.T) {
	group := int64(2000)
	asked := setup.Local{Plugin: volumetype.Local, Volume: "v", Name: "pv", Group: &group}
	for name, test := range map[string]struct {
		before func(*testing.T, *setup.Host, string) string
		gives  bool
	}{
		"nothing was bound":               {nil, true},
		"it was bound, and not yet given": {unfinished, true},
		"another agent had bound it":      {bound, false},
	} {
		t.Run(name, func(t *testing.T) {
			h, l := host(t), asked
			l.Path = t.TempDir()
			file, want := private(t, l.Path, "file"), "0:0 600"
			if test.before != nil {
				test.before(t, h, l.Path)
			}
			if test.gives {
				want = "0:2000 660"
			}
			for range 2 {
				if b, err := h.Local("u", l); err != nil || b.Group != nil || b.Refused != "" {
					t.Fatalf("%+v, %v", b, err)
				}
				if got := look(t, file); got != want {
					t.Errorf("the file is %s, want %s", got, want)
				}
				later := private(t, l.Path, "later")
				if _, err := h.Local("u", l); err != nil || look(t, later) != "0:0 600" {
					t.Errorf("a file of a container is %s, %v", look(t, later), err)
				}
				h = setup.NewHost(h.Layout.Root) // another life of the service
			}
		})
	}
}

// TestLocalIsReadOnlyInTheEnd: a kill between the bind and its flags leaves nothing that
// counts as made.
func TestLocalIsReadOnlyInTheEnd(t *testing.T) {
	h, folder := host(t), t.TempDir()
	dir := unfinished(t, h, folder)
	if _, mounted, err := h.Point("u", volumetype.Local, "v", "pv"); err != nil || mounted {
		t.Errorf("it stands without its flags: %v, %v", mounted, err)
	}
	if _, err := h.Local("u", setup.Local{Plugin: volumetype.Local, Volume: "v", Name: "pv", Path: folder, ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only volume: %v", err)
	}
	if _, mounted, err := h.Point("u", volumetype.Local, "v", "pv"); err != nil || !mounted {
		t.Errorf("it does not stand: %v", err)
	}
}

// TestLocalOfSeveralPods: a folder that another pod has is not taken from its group, and
// it is said whose it is; the disks of several pods are given to each.
func TestLocalOfSeveralPods(t *testing.T) {
	h, folder := host(t), t.TempDir()
	first, second := int64(2000), int64(3000)
	file := private(t, folder, "file")
	l := setup.Local{Plugin: volumetype.Local, Volume: "v", Name: "pv", Path: folder, Group: &first}
	if b, err := h.Local("first", l); err != nil || b.Group != nil {
		t.Fatalf("%+v, %v", b, err)
	}
	if b, err := h.Local("like-it", l); err != nil || b.Group != nil {
		t.Errorf("of the same group: %+v, %v", b, err)
	}
	l.Group = &second
	if b, err := h.Local("second", l); err != nil || b.Group == nil || *b.Group != 2000 {
		t.Errorf("of another group: %+v, %v", b, err)
	}
	if got := look(t, file); got != "0:2000 660" {
		t.Errorf("the file is %s", got)
	}
	l.Plugin = volumetype.ISCSI
	if b, err := h.Local("disk", l); err != nil || b.Group != nil || look(t, file) != "0:3000 660" {
		t.Errorf("of a disk: %+v, %v, %s", b, err, look(t, file))
	}
	for _, uid := range []string{"first", "like-it", "second", "disk"} {
		if err := h.Remove(types.UID(uid)); err != nil {
			t.Fatal(err)
		}
	}
	l.Plugin, l.Group = volumetype.Local, &first
	if b, err := h.Local("next", l); err != nil || b.Group != nil || look(t, file) != "0:2000 660" {
		t.Errorf("once the others are gone: %+v, %v, %s", b, err, look(t, file))
	}
}

// TestGive: rights are added and none taken, links have a group only, and what cannot be
// given does not keep the rest.
func TestGive(t *testing.T) {
	h, dir, outside := host(t), t.TempDir(), t.TempDir()
	other := private(t, outside, "file")
	file := private(t, dir, "file")
	sub := filepath.Join(dir, "sub")
	program := private(t, dir, "program")
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(sub, 0o700), os.Symlink(other, link), os.Chmod(program, 0o755|os.ModeSetuid), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	deep := private(t, sub, "deep")
	kept := private(t, sub, "kept\x1b")
	immutable(t, kept)
	refused, err := h.Give(dir, 2000, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"kept\x1b": operation not permitted`; refused != want {
		t.Errorf("refused %q, want %q", refused, want)
	}
	for path, want := range map[string]string{
		dir: "0:2000 2775", sub: "0:2000 2770", file: "0:2000 660", deep: "0:2000 660", program: "0:2000 4775",
		link: "0:2000 777", other: "0:0 600", kept: "0:0 600",
	} {
		if got := look(t, path); got != want {
			t.Errorf("%q is %s, want %s", path, got, want)
		}
	}
}

// TestGiveOnMismatch: the root reports whether a volume is the group's, so it comes last.
func TestGiveOnMismatch(t *testing.T) {
	h, dir := host(t), t.TempDir()
	nest(t, dir, 2100)
	if _, err := h.Give(dir, 2000, true); err == nil || !strings.Contains(err.Error(), "nested deeper than") {
		t.Fatalf("error %v", err)
	}
	if got := look(t, dir); !strings.HasPrefix(got, "0:0 ") {
		t.Errorf("the root is %s before the volume was given", got)
	}
	dir = t.TempDir()
	if _, err := h.Give(dir, 2000, true); err != nil {
		t.Fatal(err)
	}
	later := private(t, dir, "later")
	if _, err := h.Give(dir, 2000, true); err != nil || look(t, later) != "0:0 600" {
		t.Errorf("given once more: %s, %v", look(t, later), err)
	}
	if err := os.Chmod(dir, 0o2750); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Give(dir, 2000, true); err != nil || look(t, later) != "0:2000 660" {
		t.Errorf("given again though the root may not be written to: %s, %v", look(t, later), err)
	}
}

// immutable gives a file an attribute that keeps even root from changing it
// (ioctl_iflags(2)), for the length of a test.
func immutable(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0x10) // FS_IMMUTABLE_FL
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0), f.Close()); err != nil {
			t.Error(err)
		}
	})
}

// nest makes folders one in the other.
func nest(t *testing.T, dir string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(at, "aa", 0o755)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(at, "aa", unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}
