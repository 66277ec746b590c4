// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sextant-node/sextant/pkg/file"
)

// Unit is the unit that systemd, kubeadm and people know the node agent by.
const Unit = "kubelet.service"

// Files are the unit files of this machine that say what Unit is.
type Files struct {
	// Etc is systemd's folder for the administrator, Package the one with the package's
	// files for Unit.
	Etc, Package string
	// Mark is the file of a change that has not come to its end.
	Mark string
}

// HostFiles are those of the machine.
func HostFiles() Files {
	return Files{Etc: "/etc/systemd/system", Package: "/usr/lib/sextant/kubelet", Mark: "/run/sextant-migrate.json"}
}

const (
	handle = Unit + ".d/99-sextant.conf"
	pinned = "sextant-prepare.service.d/50-kubelet-flags.conf"
)

// links are the files in Etc and what they link to in Package. The last one decides: with
// it Unit is Sextant.
var links = []struct{ path, to string }{
	{"sextant-.service.d/10-kubelet.conf", "part.conf"},
	{"sextant-.socket.d/10-kubelet.conf", "socket.conf"},
	{"sextant.slice.d/10-kubelet.conf", "slice.conf"},
	{handle, "99-sextant.conf"},
}

// Installed reports whether the package's files are there.
func (f Files) Installed() bool {
	_, err := os.Stat(filepath.Join(f.Package, "99-sextant.conf"))
	return err == nil
}

// Sextant reports whether Unit is Sextant.
func (f Files) Sextant() bool {
	_, err := os.Lstat(filepath.Join(f.Etc, handle))
	return err == nil
}

// Write makes Unit Sextant. alone means that no other file defines Unit. args are the
// kubelet's flags where they are not in kubeadm's files, else nil.
func (f Files) Write(alone bool, args []string) error {
	all := links
	if alone {
		all = append(links[:len(links)-1:len(links)-1], struct{ path, to string }{Unit, Unit}, links[len(links)-1])
	}
	if args != nil {
		if err := f.pin(args); err != nil {
			return err
		}
	}
	for _, l := range all {
		path := filepath.Join(f.Etc, l.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := f.removeOwn(path); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(f.Package, l.to), path); err != nil {
			return err
		}
	}
	return nil
}

// Remove makes Unit what it was before.
func (f Files) Remove() error {
	var errs []error
	for i := len(links) - 1; i >= 0; i-- {
		errs = append(errs, f.drop(links[i].path))
	}
	return errors.Join(append(errs, f.drop(Unit), f.drop(pinned))...)
}

// drop removes a file of this package's, and its folder if that is empty then.
func (f Files) drop(path string) error {
	path = filepath.Join(f.Etc, path)
	if err := f.removeOwn(path); err != nil {
		return err
	}
	if dir := filepath.Dir(path); dir != f.Etc {
		_ = os.Remove(dir) // with other files in it, it stays
	}
	return nil
}

// removeOwn removes a link to the package, or the file with flags. A file of somebody
// else's stays.
func (f Files) removeOwn(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(to, f.Package+"/") {
			return err
		}
		return os.Remove(path)
	}
	if path != filepath.Join(f.Etc, pinned) {
		return nil
	}
	return os.Remove(path)
}

// pin writes flags for sextant-prepare.service.
func (f Files) pin(args []string) error {
	var b strings.Builder
	b.WriteString(`# Written by sextant migrate: the flags of the kubelet that ran before. kubeadm's files
# (/var/lib/kubelet/kubeadm-flags.env, /etc/default/kubelet or /etc/sysconfig/kubelet) are not
# read while this is here.
[Service]
ExecStart=
ExecStart=/usr/lib/sextant/prepare prepare`)
	for _, a := range args {
		b.WriteString(" " + quote(a))
	}
	b.WriteString(" $SEXTANT_ARGS\n")
	path := filepath.Join(f.Etc, pinned)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return file.Replace(path, []byte(b.String()), 0o644)
}

// quote writes a word of a command line as systemd reads it (systemd.service(5), "Command
// lines").
func quote(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "$", "$$", "%", "%%").Replace(word) + `"`
}
