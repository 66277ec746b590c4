// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sextant-node/sextant/pkg/file"
)

// Library is the folder with the versions.
type Library struct{ Dir string }

// DefaultDir is where the package puts it.
const DefaultDir = "/usr/lib/sextant"

const program = "sextant"

func (l Library) link(name string) string     { return filepath.Join(l.Dir, name) }
func (l Library) previous(name string) string { return filepath.Join(l.Dir, ".previous", name) }

// Installed lists the versions that are there.
func (l Library) Installed() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(l.Dir, "versions"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no versions are installed in %s: they come with the package", l.Dir)
	}
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(l.Dir, "versions", e.Name(), program)); err == nil && info.Mode()&0o111 != 0 && !strings.HasPrefix(e.Name(), ".") {
			found = append(found, e.Name())
		}
	}
	return found, nil
}

// Current is the version that a name's link points to; empty for none.
func (l Library) Current(name string) string { return target(l.link(name)) }

// Previous is the version before that one; empty for none.
func (l Library) Previous(name string) string { return target(l.previous(name)) }

func target(link string) string {
	at, err := os.Readlink(link)
	if err != nil || filepath.Base(at) != program {
		return ""
	}
	return filepath.Base(filepath.Dir(at))
}

// Executed is the version whose program a process executes, given the path of it, or false:
// a process is its parent's program, systemd's of one, until it executes its own.
func Executed(path string) (version string, ok bool) {
	dir := filepath.Dir(path)
	name := strings.TrimSuffix(filepath.Base(path), " (deleted)") // as /proc/PID/exe has it
	return filepath.Base(dir), name == program && filepath.Base(filepath.Dir(dir)) == "versions"
}

// Has is the error of a version that is not installed.
func (l Library) Has(version string) error {
	installed, err := l.Installed()
	if err == nil && !slices.Contains(installed, version) {
		err = fmt.Errorf("version %q is not installed: there are %v", version, installed)
	}
	return err
}

// Switch points a name's link to another version and records the one before.
func (l Library) Switch(name, version string) error {
	if err := l.Has(version); err != nil {
		return err
	}
	if l.Current(name) == version {
		return nil
	}
	if err := l.Record(name); err != nil {
		return err
	}
	return file.Link(l.link(name), filepath.Join("versions", version, program))
}

// Record notes the version that a name's link points to as the one to roll back to.
func (l Library) Record(name string) error {
	current := l.Current(name)
	if current == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(l.Dir, ".previous"), 0o755); err != nil {
		return err
	}
	return file.Link(l.previous(name), filepath.Join("..", "versions", current, program))
}

// Back points a name's link to the version before, after a switch that failed. It is still
// the one to roll back to: the one that failed never is.
func (l Library) Back(name, former string) error {
	if err := l.Has(former); err != nil {
		return err
	}
	return file.Link(l.link(name), filepath.Join("versions", former, program))
}
