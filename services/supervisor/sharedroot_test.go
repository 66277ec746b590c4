// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLeavesTheSharedRoot: the node's own pods' cgroups go, and those of the QoS
// classes in which there is no other pod, by systemd where it made them.
func TestLeavesTheSharedRoot(t *testing.T) {
	for name, c := range map[string]struct {
		have, want, stopped []string
	}{
		"version 2, systemd": {
			have: []string{"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podmine.slice/cri-1.scope", "kubepods.slice/kubepods-burstable.slice"},
			stopped: []string{
				"kubepods-besteffort-podmine.slice", "kubepods-besteffort.slice", "kubepods-burstable.slice", "kubepods.slice",
			},
		},
		"a pod of another agent": {
			have: []string{
				"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podother.slice", "kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-podmine.slice",
			},
			want:    []string{"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podother.slice"},
			stopped: []string{"kubepods-podmine.slice", "kubepods-burstable.slice"},
		},
		"version 1, the other in one hierarchy": {
			have: []string{"cpu/kubepods/besteffort/podother", "memory/kubepods/besteffort", "cpu/kubepods/burstable/podmine/1", "memory/kubepods/burstable"},
			want: []string{"cpu/kubepods/besteffort/podother", "memory/kubepods/besteffort"},
		},
		"nothing": {have: []string{"system.slice"}, want: []string{"system.slice"}},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			for _, dir := range c.have {
				if err := os.MkdirAll(filepath.Join(mount, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			var stopped []string
			s := sharedRoot{
				hierarchies: []string{filepath.Join(mount, "cpu"), filepath.Join(mount, "memory"), mount},
				stop:        func(_ context.Context, slice string) error { stopped = append(stopped, slice); return nil },
			}
			if err := s.leave(t.Context(), []string{"mine"}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(stopped, c.stopped) {
				t.Errorf("stopped %v, want %v", stopped, c.stopped)
			}
			for _, dir := range c.have {
				_, err := os.Stat(filepath.Join(mount, dir))
				if kept := err == nil; kept != slices.Contains(c.want, dir) {
					t.Errorf("%s kept: %v", dir, kept)
				}
			}
		})
	}
}
