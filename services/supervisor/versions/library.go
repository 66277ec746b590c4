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
func (l Library) trial(name string) string    { return filepath.Join(l.Dir, ".trial", name) }

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
	return l.note(l.previous(name), current)
}

// note makes a link to a version in one of the library's own folders.
func (l Library) note(link, version string) error {
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	return file.Link(link, filepath.Join("..", "versions", version, program))
}

// Try is Switch for a version that has yet to do its work: until Judged or Back, OnTrial is
// the version before, whatever is killed meanwhile.
func (l Library) Try(name, version string) error {
	if err := l.Has(version); err != nil {
		return err
	}
	if former := l.Current(name); former != "" && former != version {
		if err := l.note(l.trial(name), former); err != nil {
			return err
		}
	}
	return l.Switch(name, version)
}

// OnTrial is the version before the one that a name has on trial; empty for none.
func (l Library) OnTrial(name string) string { return target(l.trial(name)) }

// Back ends a trial with the version before, which is still the one to roll back to: the
// one that failed never is.
func (l Library) Back(name, former string) error {
	if err := l.Has(former); err != nil {
		return err
	}
	if err := file.Link(l.link(name), filepath.Join("versions", former, program)); err != nil {
		return err
	}
	return l.Judged(name)
}

// Judged ends a trial with the version that was on it.
func (l Library) Judged(name string) error {
	if err := os.Remove(l.trial(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
