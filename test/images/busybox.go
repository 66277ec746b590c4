// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func (b Builder) arch() string {
	if b.Arch != "" {
		return b.Arch
	}
	return runtime.GOARCH
}

// busybox wraps the machine's static busybox.
func (b Builder) busybox(ctx context.Context) (v1.Image, error) {
	shell, err := shell(ctx)
	if err != nil {
		return nil, err
	}
	return b.assemble(append(base(), shell...), v1.Config{
		Cmd: []string{"sh"},
		Env: []string{"PATH=/bin"},
	})
}

// shell is the machine's static busybox below /bin, with a link per applet.
func shell(ctx context.Context) ([]file, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("needs a static busybox (Debian: busybox-static): %w", err)
	}
	if err := requireStatic(path); err != nil {
		return nil, err
	}
	bin, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets: %w", err)
	}
	applets := strings.Fields(string(list))
	sort.Strings(applets)
	files := []file{{path: "bin", dir: true, mode: 0o755}, program("bin/busybox", bin)}
	for _, a := range applets {
		if a != "busybox" {
			files = append(files, file{path: "bin/" + a, mode: 0o777, link: "busybox"})
		}
	}
	return files, nil
}

// requireStatic refuses a program that names an interpreter: in an image without
// libraries it would end with "no such file".
func requireStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static (Debian: install busybox-static)", path)
		}
	}
	return nil
}
