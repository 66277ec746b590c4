// SPDX-License-Identifier: Apache-2.0

package setup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/volumetest"
)

func bind(t *testing.T, h *setup.Host, dir, sub string) string {
	t.Helper()
	target, err := h.Subpath("u", "v", "c", 3, dir, sub)
	if err != nil {
		t.Fatal(err)
	}
	if want := h.Layout.Root + "/pods/u/volume-subpaths/v/c/3"; target != want {
		t.Fatalf("at %s, want %s", target, want)
	}
	return target
}

func TestSubpath(t *testing.T) {
	group := int64(2000)
	h, p := host(t), newPod(&group)
	dir, err := h.EmptyDir(p, emptyDir(""), 0)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "x")
	if got := read(t, bind(t, h, dir, "file")); got != "x" {
		t.Errorf("a file reads %q", got)
	}
	// Another part at the same place, of the next container: a folder that has to
	// be made, and is the group's like the volume.
	for range 2 {
		for _, made := range []string{bind(t, h, dir, "made/deep"), filepath.Join(dir, "made")} {
			if got := look(t, made); got != "0:2000 2777" {
				t.Errorf("the made folder %s is %s", made, got)
			}
		}
	}
	if n := len(volumetest.Mounts(t, h.Layout.VolumeSubpaths("u"))); n != 1 {
		t.Errorf("%d mounts, want 1", n)
	}
}

// TestSubpathOfReplacedFiles: a container that starts after a ConfigMap changed
// gets the new file, though the old one is still bound.
func TestSubpathOfReplacedFiles(t *testing.T) {
	h, p := host(t), newPod(nil)
	v := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}
	for _, text := range []string{"old", "new"} {
		dir, err := h.Files(p, v, &content.Set{Files: map[string]content.File{"a": {Data: []byte(text), Mode: 0o644}}}, noon)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, bind(t, h, dir, "a")); got != text {
			t.Errorf("reads %q, want %q", got, text)
		}
	}
}

// TestSubpathOfASwitchedLink: of all that is bound to a target only the right part stays,
// and what was behind the others is untouched.
func TestSubpathOfASwitchedLink(t *testing.T) {
	h, volume := host(t), t.TempDir()
	for _, dir := range []string{"releases/1", "releases/2"} {
		if err := os.MkdirAll(filepath.Join(volume, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(volume, dir, "precious"), dir)
	}
	link := filepath.Join(volume, "current")
	if err := os.Symlink("releases/1", link); err != nil {
		t.Fatal(err)
	}
	target := bind(t, h, volume, "current")
	for range 2 { // what two services at the same time would do
		if err := unix.Mount(filepath.Join(volume, "releases/1"), target, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Remove(link), os.Symlink("releases/2", link)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := read(t, filepath.Join(bind(t, h, volume, "current"), "precious")); got != "releases/2" {
			t.Errorf("bound is %q", got)
		}
	}
	if n := len(volumetest.Mounts(t, target)); n != 1 {
		t.Errorf("%d mounts at the target, want 1", n)
	}
	if got := read(t, filepath.Join(volume, "releases/1/precious")); got != "releases/1" {
		t.Errorf("what was bound before: %q", got)
	}
}

// TestSubpathOfAnotherKind: what is left of a target that nothing is mounted on, as after
// a reboot, is no hindrance, be the part a file now or a folder.
func TestSubpathOfAnotherKind(t *testing.T) {
	h, volume := host(t), t.TempDir()
	write(t, filepath.Join(volume, "file"), "x")
	for _, sub := range []string{"file", "folder", "file"} {
		if err := unix.Unmount(bind(t, h, volume, sub), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSubpathStaysInside: links of the pod lead nowhere but into its volume
// (CVE-2017-1002101).
func TestSubpathStaysInside(t *testing.T) {
	h, p := host(t), newPod(nil)
	dir, err := h.EmptyDir(p, emptyDir(""), 0)
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "not yours")
	for name, target := range map[string]string{"absolute": outside, "relative": strings.Repeat("../", 20) + outside[1:], "file": filepath.Join(outside, "secret")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"absolute/secret", "relative/secret", "file", "absolute/new"} {
		target, err := h.Subpath("u", "v", "c", 0, dir, sub)
		if err != nil {
			continue // refused
		}
		if text, err := os.ReadFile(target); err == nil && string(text) == "not yours" {
			t.Errorf("%s leads out of the volume", sub)
		}
	}
	for _, sub := range []string{"/etc", "../x", "a/../../x", ".."} {
		if _, err := h.Subpath("u", "v", "c", 0, dir, sub); err == nil || !strings.Contains(err.Error(), "relative path that does not go up") {
			t.Errorf("%s: %v", sub, err)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// TestSubpathRaces has a container swap a folder of its volume for a link to the
// host, and back, as fast as it can, while parts of the volume are bound: what is
// bound, and what is made, is the volume's every time.
func TestSubpathRaces(t *testing.T) {
	h, p := host(t), newPod(nil)
	dir, err := h.EmptyDir(p, emptyDir(""), 0)
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	write(t, filepath.Join(outside, "file"), "not yours")
	swapped, other, up := filepath.Join(dir, "a"), filepath.Join(dir, "b"), strings.Repeat("../", 30)+outside[1:]
	for _, d := range []string{swapped, filepath.Join(dir, "c/deep")} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(d, "file"), "yours")
	}
	if err := os.Symlink(up, other); err != nil {
		t.Fatal(err)
	}
	stop, swaps := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				swaps <- n
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, swapped, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
					t.Errorf("swap: %v", err)
				}
			}
		}
	}()
	bound, refused := 0, 0
	for i := range 400 {
		sub := []string{"a/file", "a", "c/deep/file", fmt.Sprintf("a/made-%d", i), fmt.Sprintf("a/made/x-%d", i)}[i%5]
		target, err := h.Subpath("u", "v", "c", 0, dir, sub)
		if err != nil {
			refused++
			continue
		}
		bound++
		for _, look := range []string{target, filepath.Join(target, "file")} {
			if text, err := os.ReadFile(look); err == nil && string(text) != "yours" {
				t.Fatalf("%s at try %d leads out of the volume: %q", sub, i, text)
			}
		}
	}
	close(stop)
	n := <-swaps
	t.Logf("%d bound, %d refused, %d swaps", bound, refused, n)
	if bound == 0 || n < 400 {
		t.Errorf("no race: %d bound, %d swaps", bound, n)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("made outside: %v, %v", entries, err)
	}
	if err := h.Remove("u"); err != nil {
		t.Error(err)
	}
	if text := read(t, filepath.Join(outside, "file")); text != "not yours" {
		t.Errorf("outside: %q", text)
	}
}
