// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

func TestRenderConfig(t *testing.T) {
	base := settings{
		Root: "/d/root", State: "/d/state", Socket: "/d/containerd.sock", SocketGID: 42,
		SandboxImage: "sextant.local/pause:v1", CNIBinDir: "/usr/lib/cni", CNIConfDir: "/d/cni/net.d",
		CDIDir: "/d/cdi", CertsDir: "/d/certs.d", OptDir: "/d/opt", Runc: "/usr/sbin/runc", RuncRoot: "/d/state/runc",
		Snapshotter: "overlayfs", RestrictOOM: true, LogLevel: "info",
	}
	for name, v := range map[string]Version{"1.6.toml": {1, 6}, "2.0.toml": {2, 0}, "2.4.toml": {2, 4}, "2.4-stats.toml": {2, 4}} {
		t.Run(name, func(t *testing.T) {
			s := base
			if v.Minor != 4 || name == "2.4-stats.toml" { // those before 2.3 have no such setting
				s.StatsPeriod = "1h"
			}
			got, err := renderConfig(v, s)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("configuration differs (-want +got):\n%s", d)
			}
		})
	}
	if _, err := renderConfig(Version{3, 0}, base); err == nil {
		t.Error("a release of unknown format was rendered")
	}
}

func TestRenderCNI(t *testing.T) {
	b, err := renderCNI("net", "br", []string{"10.90.0.0/16"}, "/data")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Name    string
		Plugins []struct {
			Type   string
			Bridge string
			IPMasq bool
			IPAM   struct {
				DataDir string
				Ranges  [][]struct{ Subnet string }
			}
		}
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	if list.Name != "net" || len(list.Plugins) != 2 || list.Plugins[1].Type != "portmap" {
		t.Fatalf("network = %s", b)
	}
	p := list.Plugins[0]
	if p.Type != "bridge" || p.Bridge != "br" || p.IPMasq || p.IPAM.DataDir != "/data" || p.IPAM.Ranges[0][0].Subnet != "10.90.0.0/16" {
		t.Errorf("bridge plugin = %+v", p)
	}
}

func TestRanges(t *testing.T) {
	for f, want := range map[Families]string{
		IPv4: "[10.90.0.0/16]", DualStack: "[10.90.0.0/16 fd73:7874:a5a::/64]", IPv6: "[fd73:7874:a5a::/64]",
	} {
		if got, err := f.ranges("10.90.0.0/16"); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v; want %s", f, got, err, want)
		}
	}
	if got, err := Families("IPv5").ranges("10.90.0.0/16"); err == nil {
		t.Errorf("no such family: %v", got)
	}
}

func TestPickSubnet(t *testing.T) {
	all := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for name, tc := range map[string]struct {
		taken []netip.Prefix
		want  string
	}{
		"nothing taken":      {nil, "10.88.0.0/16"},
		"first two in use":   {[]netip.Prefix{netip.MustParsePrefix("10.88.0.0/16"), netip.MustParsePrefix("10.89.77.0/24")}, "10.90.0.0/16"},
		"other ranges":       {[]netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}, "10.88.0.0/16"},
		"a wider one covers": {all, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pickSubnet(tc.taken)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("pickSubnet = %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestParseVersion(t *testing.T) {
	for out, want := range map[string]Version{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n":                    {1, 6},
		"containerd github.com/containerd/containerd/v2 v2.4.2 \n":                                         {2, 4},
		"containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da\n":                       {1, 7},
		"containerd github.com/containerd/containerd/v2 2.0.0-rc.5 ce9eb7cf2b7b1c7a38f4ee1ee1b0f3a1d7b8\n": {2, 0},
	} {
		if got, err := parseVersion(out); err != nil || got != want {
			t.Errorf("parseVersion(%q) = %v, %v; want %v", out, got, err, want)
		}
	}
	for _, out := range []string{"", "containerd", "containerd x unknown", "containerd x v2", "containerd x 2.x.1"} {
		if got, err := parseVersion(out); err == nil {
			t.Errorf("parseVersion(%q) = %v, want an error", out, got)
		}
	}
}
