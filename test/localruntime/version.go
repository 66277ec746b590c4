// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Version is a containerd release as far as its configuration format depends on it.
type Version struct{ Major, Minor int }

// String prints the version as "1.6".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// parseVersion reads the output of `containerd --version`, whose third field is
// the release: "1.6.20~ds1" in Debian, "v2.4.2" from the project.
func parseVersion(out string) (Version, error) {
	f := strings.Fields(out)
	if len(f) < 3 {
		return Version{}, fmt.Errorf("containerd version: no release in %q", out)
	}
	parts := strings.SplitN(strings.TrimPrefix(f[2], "v"), ".", 3)
	if len(parts) < 2 {
		return Version{}, fmt.Errorf("containerd version: no release in %q", out)
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return Version{}, fmt.Errorf("containerd version: major of %q: %w", f[2], err)
	}
	minor, err := strconv.Atoi(leadingDigits(parts[1]))
	if err != nil {
		return Version{}, fmt.Errorf("containerd version: minor of %q: %w", f[2], err)
	}
	return Version{major, minor}, nil
}

func leadingDigits(s string) string {
	for i, r := range s {
		if r < '0' || r > '9' {
			return s[:i]
		}
	}
	return s
}

func detectVersion(ctx context.Context, containerd string) (Version, error) {
	out, err := exec.CommandContext(ctx, containerd, "--version").Output()
	if err != nil {
		return Version{}, fmt.Errorf("containerd version: run %s: %w", containerd, err)
	}
	return parseVersion(string(out))
}
