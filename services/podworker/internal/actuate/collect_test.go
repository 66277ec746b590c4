// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// TestRemoveDeadLinks: a link goes whose log is gone, also one whose name was cut and ends in
// no ID, unless its container lives. What is no link to a log stays, as does a link to what
// cannot be read.
func TestRemoveDeadLinks(t *testing.T) {
	n := start(t, false)
	dir := n.cfg.LegacyLogsDir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	there, gone := filepath.Join(n.root, "0.log"), filepath.Join(n.root, "gone.log")
	cut := filepath.Base(pod.LegacyLogLink("", strings.Repeat("p", 253), "ns", "c", "000000e"))
	for name, target := range map[string]string{
		"a_ns_c-000000a.log": there,
		"a_ns_c-000000b.log": gone,
		"a_ns_c-000000c.log": gone, // its log is being rotated
		"a_ns_c-000000f.log": filepath.Join(there, "in a file"),
		cut:                  gone,
		"somebody-elses":     gone,
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{there, filepath.Join(dir, "a_ns_c-000000d.log")} { // no links
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := func(live ...string) []string {
		t.Helper()
		names := map[string]bool{}
		for _, name := range live {
			names[name] = true
		}
		if err := n.RemoveDeadLinks(names); err != nil {
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
		return left
	}
	want := []string{"a_ns_c-000000a.log", "a_ns_c-000000c.log", "a_ns_c-000000d.log", "a_ns_c-000000f.log", cut, "somebody-elses"}
	if got := left("a_ns_c-000000c.log", cut); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	want = []string{"a_ns_c-000000a.log", "a_ns_c-000000d.log", "a_ns_c-000000f.log", "somebody-elses"}
	if got := left(); !slices.Equal(got, want) {
		t.Errorf("once none lives: left %q, want %q", got, want)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveDeadLinks(nil); err != nil {
		t.Errorf("without a directory: %v", err)
	}
}

func TestPruneRecords(t *testing.T) {
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
	later := n.deps.Clock.Now().Add(time.Hour)
	if err := n.PruneRecords(n.ctx(), later); err != nil || records() != 1 {
		t.Fatalf("%d records of an image that is there, %v", records(), err)
	}
	if _, err := n.deps.Images.RemoveImage(n.ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}); err != nil {
		t.Fatal(err)
	}
	if err := n.PruneRecords(n.ctx(), later); err != nil || records() != 0 {
		t.Errorf("%d records of an image that is gone, %v", records(), err)
	}
}
