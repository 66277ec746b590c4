// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sysctlDir is the folder of the kernel's tunables.
const sysctlDir = "/proc/sys"

// tunable is a setting of the kernel that a kubelet wants, whatever its configuration.
type tunable struct {
	name string // below /proc/sys
	want int
}

// tunables are those of the kubelet: memory is promised beyond what there is, the OOM
// killer ends processes and not the machine, which starts again after a fault of the
// kernel, and root has room for the keyrings of many containers.
var tunables = []tunable{
	{"vm/overcommit_memory", 1},
	{"vm/panic_on_oom", 0},
	{"kernel/panic", 10},
	{"kernel/panic_on_oops", 1},
	{"kernel/keys/root_maxkeys", 1_000_000},
	{"kernel/keys/root_maxbytes", 25_000_000},
}

// EnsureTunables gives the kernel's tunables the values that a kubelet gives them. With
// protect (protectKernelDefaults) it changes none, and fails when one has another value.
// Without protect a tunable that cannot be set is a warning: in a container that has no
// right to it, the machine's owner decides.
func EnsureTunables(protect bool) (warnings []string, err error) {
	return ensureTunables(sysctlDir, protect)
}

func ensureTunables(dir string, protect bool) (warnings []string, err error) {
	var errs []error
	for _, t := range tunables {
		file := filepath.Join(dir, t.name)
		have, err := readTunable(file)
		switch {
		case err == nil && have == t.want:
			continue
		case protect && err == nil:
			err = fmt.Errorf("invalid kernel flag: %s, expected value: %d, actual value: %d", t.name, t.want, have)
		case !protect:
			err = os.WriteFile(file, []byte(strconv.Itoa(t.want)), 0)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if protect && len(errs) > 0 {
		return nil, fmt.Errorf("protectKernelDefaults: %w", errors.Join(errs...))
	}
	for _, err := range errs {
		warnings = append(warnings, "kernel tunable not set: "+err.Error())
	}
	return warnings, nil
}

func readTunable(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return value, nil
}
