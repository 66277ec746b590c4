// SPDX-License-Identifier: Apache-2.0

package units

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
)

// dir of the unit files, seen from here.
const dir = "../../deploy/systemd"

// read returns the settings of a unit, all values of each in order.
func read(t *testing.T, name string) map[string][]string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	options, err := unit.DeserializeOptions(f)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string][]string{}
	for _, o := range options {
		settings[o.Section+"."+o.Name] = append(settings[o.Section+"."+o.Name], o.Value)
	}
	return settings
}

// TestNodeAPI: the process that faces the network can do the least.
func TestNodeAPI(t *testing.T) {
	settings := read(t, "sextant-nodeapi.service")
	for name, want := range map[string]string{
		"User": "sextant-nodeapi", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "ProtectSystem": "strict",
		"SystemCallFilter": "@system-service|~@privileged @resources", "SystemCallArchitectures": "native", "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
		"SupplementaryGroups": "adm systemd-journal", "MemoryDenyWriteExecute": "yes", "RestrictNamespaces": "yes", "PrivateDevices": "yes",
		"ExecStart": "/usr/lib/sextant/nodeapi start nodeapi", "Type": "notify", "Restart": "always",
	} {
		got, ok := settings["Service."+name]
		if !ok || strings.Join(got, "|") != want {
			t.Errorf("%s=%q, want %q", name, strings.Join(got, "|"), want)
		}
	}
}

// TestRights: a unit gives its service what the house table says and no more, and
// an account of its own.
func TestRights(t *testing.T) {
	for _, s := range house.Services() {
		settings := read(t, "sextant-"+string(s)+".service")
		rights := house.RightsOf(s)
		var names []string
		for _, c := range rights.Capabilities {
			names = append(names, c.String())
		}
		groups := slices.Clone(rights.Groups)
		if rights.RuntimeSocket {
			groups = append(groups, "root") // containerd's and CRI-O's own default
		}
		want := map[string]string{
			"User": "sextant-" + string(s), "Group": "sextant-" + string(s), "Slice": "sextant.slice",
			"SupplementaryGroups":   strings.Join(groups, " "),
			"CapabilityBoundingSet": strings.Join(names, " "), "AmbientCapabilities": strings.Join(names, " "),
			"NoNewPrivileges": "yes", "Type": "notify", "Restart": "always", "WatchdogSec": "30s",
			"ExecStart":      fmt.Sprintf("/usr/lib/sextant/%[1]s start %[1]s", s),
			"LoadCredential": "",
		}
		if node := "/var/lib/sextant/bus-keys/" + string(s) + ".nk"; s != house.Bus && s != house.Volume {
			want["LoadCredential"] = service.BusCredential + ":" + node
		}
		for name, value := range want {
			if got := strings.Join(settings["Service."+name], "|"); got != value {
				t.Errorf("%s: %s=%q, want %q", s, name, got, value)
			}
		}
		for _, name := range []string{"MemoryMax", "CPUWeight", "SystemCallFilter", "TasksMax"} {
			if len(settings["Service."+name]) == 0 {
				t.Errorf("%s: no %s", s, name)
			}
		}
		hidden := strings.Join(settings["Service.InaccessiblePaths"], " ")
		if s == house.Resource {
			hidden = strings.ReplaceAll(strings.Join(settings["Service.TemporaryFileSystem"], " "), "/run:ro", "-/run/containerd -/run/crio")
		}
		if s != house.Volume && !rights.RuntimeSocket && !strings.Contains(hidden, "-/run/containerd -/run/crio") {
			t.Errorf("%s: the runtime's socket is in sight", s)
		}
	}
}

// TestKubelet: a node has one agent, and where kubelet.service is Sextant, every unit is part
// of it. The files that say so have the same names, so that one replaces the other, and the
// units themselves say nothing of it, because a drop-in cannot take back a dependency.
func TestKubelet(t *testing.T) {
	for folder, with := range map[string]string{"sextant-.service.d": "part.conf", "sextant-.socket.d": "socket.conf", "sextant.slice.d": "slice.conf"} {
		if got := strings.Join(read(t, folder+"/10-kubelet.conf")["Unit.Conflicts"], " "); got != "kubelet.service" {
			t.Errorf("%s: Conflicts=%q", folder, got)
		}
		if got := strings.Join(read(t, "../kubelet/"+with)["Unit.PartOf"], " "); got != "kubelet.service" {
			t.Errorf("%s: PartOf=%q", with, got)
		}
	}
	units, err := filepath.Glob(filepath.Join(dir, "sextant*.*"))
	if err != nil {
		t.Fatal(err)
	}
	// What a node's own unit may set, and the handle cannot do.
	for name, want := range map[string]string{"WatchdogSec": "0", "RestartForceExitStatus": "", "Restart": "no"} {
		if got := read(t, "../kubelet/99-sextant.conf")["Service."+name]; len(got) != 1 || got[0] != want {
			t.Errorf("the handle: %s=%q, want %q", name, got, want)
		}
	}
	follows := strings.Join(read(t, "../kubelet/99-sextant.conf")["Service.ExecStart"], " ")
	for _, path := range units {
		name := filepath.Base(path)
		if filepath.Ext(name) == ".d" {
			continue
		}
		settings := read(t, name)
		for _, dependency := range []string{"Conflicts", "PartOf", "After", "Before"} {
			if slices.Contains(strings.Fields(strings.Join(settings["Unit."+dependency], " ")), "kubelet.service") {
				t.Errorf("%s: %s=kubelet.service", name, dependency)
			}
		}
		if filepath.Ext(name) == ".service" && !strings.Contains(follows+" ", "-u "+strings.TrimSuffix(name, ".service")+" ") {
			t.Errorf("journalctl -u kubelet does not show the log of %s", name)
		}
	}
}

// TestOpenat2: RestrictSUIDSGID= makes openat2(2) fail (systemd.exec(5)), and these parts
// stay in a folder with it.
func TestOpenat2(t *testing.T) {
	for _, part := range []house.RootPart{house.Prepare, house.Tools} {
		if got := read(t, part.Unit())["Service.RestrictSUIDSGID"]; len(got) > 0 {
			t.Errorf("%s: RestrictSUIDSGID=%v", part, got)
		}
	}
}

// TestHidden: services that may open files of others do not have in sight what they
// never need. CAP_DAC_OVERRIDE opens sockets as well, also on a read-only mount: with
// systemd's private one it would be root's.
func TestHidden(t *testing.T) {
	secrets := []string{"/etc/shadow", "/etc/gshadow", "/etc/ssh", "/var/lib/etcd", "/var/lib/sextant/bus-keys"}
	for s, hidden := range map[house.Service][]string{
		house.Config: append([]string{
			"/etc/kubernetes/admin.conf", "/etc/kubernetes/pki/ca.key", "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/etcd", "/var/lib/kubelet/pods",
		}, secrets...),
		house.Resource: append([]string{"/etc/kubernetes", "/var/lib/kubelet/pki", "/var/lib/sextant/secrets"}, secrets...),
	} {
		have := strings.Fields(strings.Join(read(t, "sextant-"+string(s)+".service")["Service.InaccessiblePaths"], " "))
		for _, path := range hidden {
			if !slices.Contains(have, "-"+path) {
				t.Errorf("%s has %s in sight", s, path)
			}
		}
	}
	settings := read(t, "sextant-resource.service")
	if got := strings.Join(settings["Service.TemporaryFileSystem"], " "); got != "/run:ro" {
		t.Errorf("resource: TemporaryFileSystem=%q", got)
	}
	if got := strings.Join(settings["Service.BindReadOnlyPaths"], " "); got != "-/run/sextant -/run/systemd/notify -/run/systemd/system" {
		t.Errorf("resource: BindReadOnlyPaths=%q", got)
	}
}

// TestHardening: what every unit can do without, and what none must have.
func TestHardening(t *testing.T) {
	units, err := filepath.Glob(filepath.Join(dir, "*.service"))
	if err != nil || len(units) < len(house.Services()) {
		t.Fatalf("%v, %v", units, err)
	}
	for _, path := range units {
		name := filepath.Base(path)
		settings := read(t, name)
		if filter := strings.Join(settings["Service.SystemCallFilter"], " "); !regexp.MustCompile(`~[^~]*@resources`).MatchString(filter) && name != "sextant-tools.service" { // whose children are the distribution's
			t.Errorf("%s: SystemCallFilter=%s", name, filter)
		}
		// Peers are told apart by the uids that the kernel says they have (SO_PEERCRED): in a
		// user namespace all but two are nobody.
		if _, ok := settings["Service.PrivateUsers"]; ok {
			t.Errorf("%s: PrivateUsers would have it refuse its peers", name)
		}
		// The start of the process, which is a metric, is told by /proc/stat.
		if _, ok := settings["Service.ProcSubset"]; ok != (name == "sextant-gate.service") {
			t.Errorf("%s: ProcSubset=%v", name, settings["Service.ProcSubset"])
		}
	}
	for _, name := range []string{"sextant-gate.service", "sextant-prepare.service"} {
		if got := strings.Join(read(t, name)["Service.UMask"], " "); got != "0077" {
			t.Errorf("%s: UMask=%q", name, got)
		}
	}
}

// TestArchitecture: the page names the capabilities of the table.
func TestArchitecture(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for _, s := range house.Services() {
		for _, c := range house.RightsOf(s).Capabilities {
			want[string(s)] = append(want[string(s)], c.String())
		}
	}
	for _, p := range house.RootParts() {
		if p != house.Prepare { // it ends
			want["supervisor"] = append(want["supervisor"], strings.Fields(strings.Join(read(t, p.Unit())["Service.CapabilityBoundingSet"], " "))...)
		}
	}
	for _, s := range append(house.Services(), "supervisor") {
		row := regexp.MustCompile(`(?m)^\| \*\*` + string(s) + `\*\* \|.*$`).FindString(string(page))
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			t.Errorf("no row of %s", s)
			continue
		}
		if got := regexp.MustCompile(`CAP_[A-Z_]+`).FindAllString(cells[len(cells)-2], -1); !slices.Equal(got, want[string(s)]) {
			t.Errorf("%s has %v on the page, %v in the table", s, got, want[string(s)])
		}
	}
}

// TestMountersShareTheNodesMounts: none of the settings that would give those who
// mount a mount namespace of their own, in which their mounts stayed.
func TestMountersShareTheNodesMounts(t *testing.T) {
	for _, s := range []string{"volume", "tools"} {
		shareMounts(t, s)
	}
}

func shareMounts(t *testing.T, s string) {
	for name := range read(t, "sextant-"+s+".service") {
		switch name {
		case "Service.ProtectSystem", "Service.ProtectHome", "Service.PrivateTmp", "Service.PrivateDevices", "Service.PrivateMounts",
			"Service.ProtectProc", "Service.ProcSubset", "Service.ProtectControlGroups", "Service.ProtectKernelLogs",
			"Service.ProtectKernelModules", "Service.ProtectKernelTunables", "Service.ReadWritePaths", "Service.ReadOnlyPaths",
			"Service.InaccessiblePaths", "Service.BindPaths", "Service.TemporaryFileSystem", "Service.MountFlags",
			"Service.RootDirectory", "Service.LoadCredential", "Service.DynamicUser":
			t.Errorf("%s gives %s mounts of its own", name, s)
		}
	}
}

// TestSlice: starting the slice starts everything.
func TestSlice(t *testing.T) {
	wants := strings.Fields(strings.Join(read(t, "sextant.slice")["Unit.Wants"], " "))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && name != "sextant.slice" && !slices.Contains(wants, name) {
			t.Errorf("sextant.slice does not want %s", name)
		}
	}
}

// TestAccounts: the package makes the account of every unit, with the number that
// `sextant up` gives the service by default, which no image uses.
func TestAccounts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/package/sysusers.conf")
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range house.Services() {
		if want := fmt.Sprintf("(?m)^u sextant-%s %d ", s, 64200+i); !regexp.MustCompile(want).Match(text) {
			t.Errorf("no account of %s that begins with %q", s, want)
		}
	}
}

// TestSystemdTakesThem: systemd itself finds nothing to say about the units, and
// they are no more exposed than the operations guide says.
func TestSystemdTakesThem(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); errors.Is(err, exec.ErrNotFound) {
		t.Fatal("systemd-analyze is missing: the package systemd has it")
	}
	entries, err := os.ReadDir(dir)
	// Folders hold drop-ins for the units of others.
	entries = slices.DeleteFunc(entries, os.DirEntry.IsDir)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d units, %v", len(entries), err)
	}
	copied := t.TempDir()
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		// What they start is not installed here.
		text = regexp.MustCompile(`(?m)^ExecStart=.*$`).ReplaceAll(text, []byte("ExecStart=/bin/true"))
		if err := os.WriteFile(filepath.Join(copied, entry.Name()), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	analyze := func(args ...string) (string, error) {
		cmd := exec.Command("systemd-analyze", args...)
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+copied+":") // and where they usually are
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, entry := range entries {
		if out, err := analyze("verify", "--man=no", filepath.Join(copied, entry.Name())); err != nil || strings.Contains(out, "sextant") {
			t.Errorf("%s: %v\n%s", entry.Name(), err, out)
		}
	}
	// The measure of each stands in the operations guide.
	guide, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".service" {
			continue
		}
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(entry.Name()) + "` \\|.*\\| ([0-9]+)\\.([0-9]) \\|$").FindStringSubmatch(string(guide))
		if row == nil {
			t.Errorf("the guide does not say how exposed %s is", entry.Name())
			continue
		}
		// The threshold is in tenths.
		if out, err := analyze("security", "--offline=yes", "--threshold="+strings.TrimLeft(row[1]+row[2], "0"), "--no-pager", filepath.Join(copied, entry.Name())); err != nil {
			t.Errorf("%s is more exposed than %s.%s: %v\n%s", entry.Name(), row[1], row[2], err, out)
		}
	}
}
