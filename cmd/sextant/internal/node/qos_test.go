package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestClassesGoWhenNoPodIsInThem: of the cgroups of the QoS classes those go that
// are empty in all hierarchies, by systemd where it made them.
func TestClassesGoWhenNoPodIsInThem(t *testing.T) {
	for name, c := range map[string]struct {
		have, want, stopped []string
	}{
		"version 2, systemd": {
			have:    []string{"kubepods.slice/kubepods-besteffort.slice", "kubepods.slice/kubepods-burstable.slice"},
			stopped: []string{"kubepods-besteffort.slice", "kubepods-burstable.slice", "kubepods.slice"},
		},
		"a pod of another agent": {
			have:    []string{"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podx.slice", "kubepods.slice/kubepods-burstable.slice"},
			want:    []string{"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podx.slice"},
			stopped: []string{"kubepods-burstable.slice"},
		},
		"version 1, in one hierarchy": {
			have: []string{"cpu/kubepods/besteffort/podx", "memory/kubepods/besteffort", "cpu/kubepods/burstable", "memory/kubepods/burstable"},
			want: []string{"cpu/kubepods/besteffort/podx", "memory/kubepods/besteffort"},
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
			stop := func(_ context.Context, slice string) error { stopped = append(stopped, slice); return nil }
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // pods of others do not go
			defer cancel()
			if err := removeClassesBelow(ctx, mount, nil, stop); err != nil {
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
