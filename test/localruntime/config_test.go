// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"strings"
	"testing"
)

func TestConfigErrorsNameTheField(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg   Config
		field string
	}{
		"no directory":       {Config{}, "Dir"},
		"relative directory": {Config{Dir: "x"}, "Dir"},
		"root directory":     {Config{Dir: "/"}, "Dir"},
		"root in disguise":   {Config{Dir: "/x/.."}, "Dir"},
		"long socket":        {Config{Dir: "/" + strings.Repeat("d", 100)}, "Socket"},
		"long bridge":        {Config{Dir: "/d", Bridge: "sixteen-letters!"}, "Bridge"},
		"no range":           {Config{Dir: "/d", Subnet: "10.0.0.0"}, "Subnet"},
		"tiny range":         {Config{Dir: "/d", Subnet: "10.0.0.0/31"}, "Subnet"},
		"IPv6 range":         {Config{Dir: "/d", Subnet: "fd00::/64"}, "Subnet"},
		"root cgroup":        {Config{Dir: "/d", CgroupRoots: []string{"/"}}, "CgroupRoots"},
		"unclean cgroup":     {Config{Dir: "/d", CgroupRoots: []string{"/a/../.."}}, "CgroupRoots"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.cfg.withDefaults()
			if err == nil || !strings.HasPrefix(err.Error(), "invalid "+tc.field+": ") {
				t.Errorf("error %v does not name %s", err, tc.field)
			}
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	a, err := Config{Dir: "/a/", Subnet: "10.1.2.3/16"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Config{Dir: "/b"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if a.Bridge == b.Bridge || len(a.Bridge) > maxInterfaceName {
		t.Errorf("bridges %q and %q", a.Bridge, b.Bridge)
	}
	if a.Socket != "/a/containerd.sock" || a.Subnet != "10.1.0.0/16" || a.SandboxImage != DefaultSandboxImage {
		t.Errorf("defaults = %+v", a)
	}
}

func TestTeardownRefusesAForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := Teardown(t.Context(), Config{Dir: dir}); err == nil {
		t.Error("a directory without the marker was removed")
	}
	if err := Teardown(t.Context(), Config{Dir: dir + "/missing"}); err != nil {
		t.Errorf("a missing directory: %v", err)
	}
}

func TestEnsureRefusesAForeignDirectory(t *testing.T) {
	c, err := Config{Dir: t.TempDir()}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.claimDir(); err != nil {
		t.Fatalf("an empty directory: %v", err)
	}
	if err := writeJSON(c.Dir+"/something", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.claimDir(); err == nil {
		t.Error("a directory with foreign content was claimed")
	}
	if err := writeJSON(c.markerFile(), marker{Subnet: "10.5.0.0/16"}); err != nil {
		t.Fatal(err)
	}
	if m, err := c.claimDir(); err != nil || m.Subnet != "10.5.0.0/16" {
		t.Errorf("own directory: %+v, %v", m, err)
	}
}
