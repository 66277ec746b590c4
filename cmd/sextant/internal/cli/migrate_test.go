// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sextant-node/sextant/cmd/sextant/internal/migrate"
	"github.com/sextant-node/sextant/services/supervisor"
	"github.com/sextant-node/sextant/test/fakelogind"
)

// TestMigrateChecks: a kubelet whose configuration Sextant refuses keeps its node. One whose
// files are not there yet has none to keep.
func TestMigrateChecks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: {GateOfAnotherVersion: true}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		back bool
		code int
		ends bool
	}{
		"a gate of another version":          {args: []string{"--config=" + file}, code: exitUsage},
		"a flag of another version":          {args: []string{"--flag-of-another-version"}, code: exitUsage},
		"files that are not there":           {args: []string{"--config=" + file + ".none"}, ends: true},
		"back, with a gate that is not ours": {args: []string{"--config=" + file}, back: true, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			machine := fakelogind.Start(t, false)
			t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", machine.Address())
			machine.Unit(migrate.Unit, true)
			machine.Unit(supervisor.Slice, false)
			dir, ended := t.TempDir(), false
			m := &migrateFlags{up: upFlags{run: dir, state: dir, uidBase: 64200}, back: tt.back}
			change := &migrate.Change{
				Files: migrate.Files{Etc: filepath.Join(dir, "etc"), Package: filepath.Join(dir, "package"), Mark: filepath.Join(dir, "mark")}, To: migrate.Sextant,
				Step: func(name string, do func() (string, error)) error {
					_, err := do()
					ended = ended || !machine.Active(migrate.Unit)
					return err
				},
			}
			if tt.back {
				change.To = migrate.Kubelet
			}
			if err := m.begin(t.Context(), io.Discard, change, tt.args, "a test"); ExitCode(err) != tt.code || ended != tt.ends {
				t.Errorf("%v; the kubelet was ended: %t", err, ended)
			}
		})
	}
}
