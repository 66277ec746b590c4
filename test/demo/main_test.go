// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/config"
	"github.com/sextant-node/sextant/test/images"
)

// TestConfig: the node's configuration is read without a warning of its own, and its
// values arrive.
func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, kubeletYAML, "/d", "unix:///d/containerd/containerd.sock", 10250, 10248), 0o644); err != nil {
		t.Fatal(err)
	}
	flags, err := kubeletconfig.ParseFlags([]string{"--config=" + file, "--hostname-override=demo"})
	if err != nil {
		t.Fatal(err)
	}
	conf, warnings, err := kubeletconfig.Load(flags, kubeletconfig.Inputs{Files: os.DirFS("/"), Hostname: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		if text := w.String(); !strings.HasPrefix(text, "default: ") { // what any node is warned of
			t.Error(text)
		}
	}
	if k := conf.Kubelet; k.StaticPodPath != "/d/manifests" || conf.CgroupRoot() != cgroupRoot || *k.MakeIPTablesUtilChains {
		t.Errorf("static pods %q, cgroup root %q, chains %v", k.StaticPodPath, conf.CgroupRoot(), *k.MakeIPTablesUtilChains)
	}
}

// TestExamples: the examples are pods that a node takes, with images that make up has.
func TestExamples(t *testing.T) {
	found := 0
	files, err := filepath.Glob("../../deploy/examples/*.yaml")
	more, moreErr := filepath.Glob("../../deploy/examples/*/*.yaml")
	if err := errors.Join(err, moreErr); err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(files, more) {
		all, err := config.ReadManifests(file, "demo")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			found++
			if m.Problem != "" {
				t.Errorf("%s: %s", m.Path, m.Problem)
				continue
			}
			for _, c := range slices.Concat(m.Pod.Spec.InitContainers, m.Pod.Spec.Containers) {
				if c.Image != images.Hello {
					t.Errorf("%s: image %s", m.Path, c.Image)
				}
			}
		}
	}
	if found < 2 {
		t.Errorf("%d examples", found)
	}
}

// TestCopyMissing: a manifest that the user changed stays.
func TestCopyMissing(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(from, "a.yaml"): "new", filepath.Join(from, "b.yaml"): "new", filepath.Join(to, "a.yaml"): "changed",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyMissing(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a.yaml": "changed", "b.yaml": "new"} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}
