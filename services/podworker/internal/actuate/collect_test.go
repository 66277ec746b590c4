package actuate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestTidy(t *testing.T) {
	n := start(t, false)
	dir := n.cfg.LegacyLogsDir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(n.root, "0.log")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(n.root, "gone.log")
	for name, target := range map[string]string{
		"a_ns_c-000000a.log": there, // its log is there
		"a_ns_c-000000b.log": gone,
		"a_ns_c-000000c.log": gone, // runs: its log is being rotated
		"somebody-elses":     gone,
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a_ns_c-000000d.log"), nil, 0o600); err != nil { // no link
		t.Fatal(err)
	}
	runs := func(id string) bool { return id == "000000c" }
	if err := n.Tidy(n.ctx(), n.deps.Clock.Now(), runs); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{"a_ns_c-000000a.log", "a_ns_c-000000c.log", "a_ns_c-000000d.log", "somebody-elses"}
	if !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}

func TestTidyForgetsPullsOfRemovedImages(t *testing.T) {
	const image = "r.example/app:1"
	n := start(t, false)
	p := private(n, "team")
	ref, err := n.EnsureImage(n.ctx(), ImageSpec{Pod: p, Container: "web", Image: image, Policy: v1.PullIfNotPresent})
	if err != nil {
		t.Fatal(err)
	}
	records := func() int {
		list, err := filepath.Glob(filepath.Join(n.cfg.rootDir(), "image_manager", "pulled", "sha256-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	nobody := func(string) bool { return false }
	later := n.deps.Clock.Now().Add(time.Hour)
	if err := n.Tidy(n.ctx(), later, nobody); err != nil || records() != 1 {
		t.Fatalf("%d records of an image that is there, %v", records(), err)
	}
	if _, err := n.deps.Images.RemoveImage(n.ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}); err != nil {
		t.Fatal(err)
	}
	if err := n.Tidy(n.ctx(), later, nobody); err != nil || records() != 0 {
		t.Errorf("%d records of an image that is gone, %v", records(), err)
	}
}
