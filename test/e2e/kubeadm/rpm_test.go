// SPDX-License-Identifier: Apache-2.0

package kubeadm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// TestRPM has rpm itself install the package, the next one and the former one again under
// pods, and remove it in the end. The machine is Debian with rpm beside dpkg: what rpm does
// and calls is that of an RPM distribution, systemd and the rest are Debian's. rpm knows
// nothing of the machine's other packages, so that it is not to look for them.
func TestRPM(t *testing.T) {
	m, join := newMachineWithout(t)
	m.run("rpm", "--initdb")
	m.rpm("-i", "")
	if out := m.run("rpm", "-q", "sextant"); !strings.HasPrefix(out, "sextant-") {
		t.Errorf("rpm -q sextant: %s", out)
	}
	m.run("rpm", "-V", "--nodeps", "sextant")
	m.run("sextant", "migrate")
	m.kubeadm(join...)
	m.node()
	for _, name := range []string{"app-0", "app-1", "app-2"} {
		m.start(name)
	}
	before, flips, first := m.look(), m.watchFlips(), m.versions()
	m.rpm("-U", "next")
	if next := m.versions(); next == first {
		t.Errorf("everything runs %s still", first)
	}
	m.same(before)
	m.rpm("-U", "", "--oldpackage")
	if now := m.versions(); now != first {
		t.Errorf("everything runs %s, not %s", now, first)
	}
	m.same(before)
	if seen := flips(); len(seen) > 0 {
		t.Errorf("flips:\n%s", strings.Join(seen, "\n"))
	}
	m.run("rpm", "-e", "sextant")
	m.agent("kubelet")
	m.same(before)
	for _, path := range []string{"/usr/lib/sextant", "/usr/bin/sextant", "/usr/lib/systemd/system/sextant.slice"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left by the package", path)
		}
	}
	if left := m.run("systemctl", "list-units", "--all", "--no-legend", "--plain", "sextant*"); strings.TrimSpace(left) != "" {
		t.Errorf("units left by the package:\n%s", left)
	}
	m.kubeadm("reset", "--force", "--cri-socket="+endpoint)
}

// rpm installs the package of a folder.
func (m *machine) rpm(what, folder string, flags ...string) {
	m.Helper()
	found, err := filepath.Glob(filepath.Join(harness.BootFiles, folder, "sextant-*.rpm"))
	if err != nil || len(found) != 1 {
		m.Fatalf("packages %v, %v", found, err)
	}
	m.run("rpm", append(append([]string{what, "--nodeps"}, flags...), found[0])...)
}
