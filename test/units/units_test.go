package units

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
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
		"SystemCallFilter": "@system-service|~@privileged", "SystemCallArchitectures": "native", "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
		"SupplementaryGroups": "adm systemd-journal", "MemoryDenyWriteExecute": "yes", "RestrictNamespaces": "yes", "PrivateDevices": "yes",
		"ExecStart": "/usr/lib/sextant/nodeapi run nodeapi", "Type": "notify", "Restart": "always",
	} {
		got, ok := settings["Service."+name]
		if !ok || strings.Join(got, "|") != want {
			t.Errorf("%s=%q, want %q", name, strings.Join(got, "|"), want)
		}
	}
	if !slices.Contains(settings["Service.InaccessiblePaths"], "-/run/containerd -/run/crio") {
		t.Error("the runtime's socket is in sight")
	}
}

// TestSystemdTakesThem: systemd itself finds nothing to say about the units, and
// little that could still be taken from nodeapi.
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
	const most = "25" // tenths of systemd's measure
	if out, err := analyze("security", "--offline=yes", "--threshold="+most, "--no-pager", filepath.Join(copied, "sextant-nodeapi.service")); err != nil {
		t.Errorf("nodeapi is exposed: %v\n%s", err, out)
	}
}
