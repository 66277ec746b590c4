// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kernel is a folder of tunables with a kernel's own values.
func kernel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"vm/overcommit_memory": "0\n", "vm/panic_on_oom": "0\n", "kernel/panic": "0\n", "kernel/panic_on_oops": "1\n",
		"kernel/keys/root_maxkeys": "1000000\n", "kernel/keys/root_maxbytes": "25000000\n",
	} {
		setTunable(t, dir, name, value)
	}
	return dir
}

func setTunable(t *testing.T, dir, name, value string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTunablesAreSet(t *testing.T) {
	t.Parallel()
	dir := kernel(t)
	for range 2 { // the second time there is nothing to do
		if warnings, err := ensureTunables(dir, false); err != nil || len(warnings) > 0 {
			t.Fatalf("%q, %v", warnings, err)
		}
	}
	for _, want := range tunables {
		if have, err := readTunable(filepath.Join(dir, want.name)); err != nil || have != want.want {
			t.Errorf("%s is %d, %v; want %d", want.name, have, err, want.want)
		}
	}
}

func TestTunablesAreOnlyLookedAt(t *testing.T) {
	t.Parallel()
	dir := kernel(t)
	_, err := ensureTunables(dir, true)
	for _, want := range []string{
		"protectKernelDefaults",
		"invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0",
		"invalid kernel flag: kernel/panic, expected value: 10, actual value: 0",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "panic_on_oom") {
		t.Errorf("%v names one that is as it should be", err)
	}
	if have, err := readTunable(filepath.Join(dir, "vm/overcommit_memory")); err != nil || have != 0 {
		t.Errorf("it was changed to %d, %v", have, err)
	}
	if _, err := ensureTunables(dir, false); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureTunables(dir, true); err != nil {
		t.Errorf("with all as they should be: %v", err)
	}
}

func TestTunablesThatCannotBeSet(t *testing.T) {
	t.Parallel()
	dir := kernel(t)
	if err := os.RemoveAll(filepath.Join(dir, "kernel")); err != nil {
		t.Fatal(err)
	}
	warnings, err := ensureTunables(dir, false)
	if err != nil || len(warnings) != 4 || !strings.Contains(warnings[0], "kernel/panic") {
		t.Errorf("warnings %q, %v", warnings, err)
	}
	if have, err := readTunable(filepath.Join(dir, "vm/overcommit_memory")); err != nil || have != 1 {
		t.Errorf("the others are not set: %d, %v", have, err)
	}
	setTunable(t, dir, "kernel/panic", "ten\n")
	if _, err := ensureTunables(dir, true); err == nil || !strings.Contains(err.Error(), `kernel/panic: strconv.Atoi: parsing "ten"`) {
		t.Errorf("a value that is no number: %v", err)
	}
}
