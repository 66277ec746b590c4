package setup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/services/volume/internal/volumetest"
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
		if got := look(t, bind(t, h, dir, "made/deep")); got != "0:2000 2777" {
			t.Errorf("a made folder is %s", got)
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
