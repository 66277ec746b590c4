// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
)

// certFolder is --cert-dir. It is root's, and holds a folder for each of the two
// services that have a certificate (house.CertDir), which no other may enter: whatever
// can create names beside a private key can redirect a write of it. The kubelet's names
// of the certificates are links into those folders, so that a kubelet that comes back
// finds them, and so do other programs.
type certFolder struct {
	dir             string
	config, nodeapi Account
}

// certs are the certificates of one service.
type certs struct {
	service house.Service
	own     Account
	// prefix of the kubelet's files; plain are its files without that prefix.
	prefix string
	plain  []string
}

func (c certFolder) all() []certs {
	return []certs{
		{house.Config, c.config, "kubelet-client", nil},
		{house.NodeAPI, c.nodeapi, "kubelet-server", []string{"kubelet.crt", "kubelet.key"}},
	}
}

// current is the kubelet's name of the certificate in use.
func (c certs) current() string { return c.prefix + "-current.pem" }

// linked are the names that are links in --cert-dir.
func (c certs) linked() []string { return append([]string{c.current()}, c.plain...) }

// has reports whether a file is one of the service's.
func (c certs) has(name string) bool {
	return slices.Contains(c.plain, name) || strings.HasPrefix(name, c.prefix)
}

// ensure creates the folder, and moves the files that a kubelet left in it to the
// service that now uses them.
func (c certFolder) ensure() error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	dir, err := os.OpenFile(c.dir, unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // read only
	var is unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &is); err != nil {
		return &fs.PathError{Op: "stat", Path: c.dir, Err: err}
	}
	// An earlier version shared it between the two. From here on its names are root's.
	if is.Uid != 0 {
		if err := give(dir, Account{}, 0o755); err != nil {
			return err
		}
	}
	var all []error
	for _, s := range c.all() {
		all = append(all, c.lay(s, is.Uid))
	}
	return errors.Join(all...)
}

// lay makes the folder of a service, moves its files there and links their names.
// former is the uid that owned --cert-dir before.
func (c certFolder) lay(s certs, former uint32) error {
	own := house.CertDir(c.dir, s.service)
	if info, err := os.Lstat(own); err == nil && (!info.IsDir() || former != 0 && !s.trusts(ownerOf(info), former)) {
		// Files that any user could have made there are not taken over.
		if _, err := file.Aside(own, time.Now()); err != nil {
			return err
		}
	}
	if err := (ownedFolder{own, 0o700, s.own, true}).ensure(); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && s.has(e.Name()) && s.takes(info, former) {
			if err := c.move(s, e.Name()); err != nil {
				return err
			}
		}
	}
	for _, name := range s.linked() {
		if err := c.link(s, name, former); err != nil {
			return err
		}
	}
	return nil
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// trusts reports whether a uid is the service's or root's; former is the uid of config
// if --cert-dir belonged to it before.
func (c certs) trusts(uid, former uint32) bool {
	return uid == 0 || uid == c.own.UID || c.service == house.Config && uid == former
}

// takes reports whether a file in --cert-dir is moved: a regular file with a trusted
// owner and one name only, for a second name could be anywhere.
func (c certs) takes(info fs.FileInfo, former uint32) bool {
	return info.Mode().IsRegular() && info.Sys().(*syscall.Stat_t).Nlink == 1 && c.trusts(ownerOf(info), former)
}

// move moves a file to the service's folder. Of the two, the service can change only
// the names in its own, and a rename follows none.
func (c certFolder) move(s certs, name string) error {
	dir, err := os.OpenFile(house.CertDir(c.dir, s.service), unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // read only
	at, err := unix.Open(filepath.Join(c.dir, name), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(c.dir, name), Err: err}
	}
	defer unix.Close(at) //nolint:errcheck // a path only
	err = unix.Fchownat(at, "", int(s.own.UID), int(s.own.GID), unix.AT_EMPTY_PATH)
	if err == nil {
		err = unix.Renameat(unix.AT_FDCWD, filepath.Join(c.dir, name), int(dir.Fd()), name)
	}
	if err != nil {
		return &fs.PathError{Op: "move", Path: filepath.Join(c.dir, name), Err: err}
	}
	return nil
}

// link makes a name in --cert-dir a link to that name in the service's folder. If it
// was a link to a file, the name in the folder now is.
func (c certFolder) link(s certs, name string, former uint32) error {
	at := filepath.Join(c.dir, name)
	own := house.CertDir(c.dir, s.service)
	want := filepath.Join(filepath.Base(own), name)
	to, err := os.Readlink(at)
	if errors.Is(err, fs.ErrNotExist) && name == s.current() {
		// A kubelet may have been killed between removing the name and making it again.
		to, err = os.Readlink(filepath.Join(c.dir, s.prefix+"-updated.pem"))
	}
	info, statErr := os.Lstat(at)
	switch {
	case err == nil && to == want:
		return c.follow(own, name)
	case err == nil && former == 0 && name != s.current():
		return nil // the operator's, to the operator's own file
	case err == nil && (statErr != nil || s.trusts(ownerOf(info), former)):
		if base := filepath.Base(to); to == base || filepath.Clean(to) == filepath.Join(c.dir, base) {
			if to = base; former == 0 && c.stayed(base) {
				to = filepath.Join(c.dir, base)
			} // else it was moved
		}
		if err := replaceLink(own, name, to); err != nil {
			return err
		}
	case statErr == nil: // another process has made it
		if _, err := file.Aside(at, time.Now()); err != nil {
			return err
		}
	}
	return replaceLink(c.dir, name, want)
}

// stayed reports whether a file of root's was not moved, as one with a second name, which a
// backup may have given it, is not: the link leads to it where it is.
func (c certFolder) stayed(name string) bool {
	info, err := os.Lstat(filepath.Join(c.dir, name))
	return err == nil && info.Mode().IsRegular() && ownerOf(info) == 0
}

// follow has a link in a service's folder lead to its file, where that has been moved
// beside it since.
func (c certFolder) follow(own, name string) error {
	to, _ := os.Readlink(filepath.Join(own, name)) // "" for what is no link
	base := filepath.Base(to)
	if to != filepath.Join(c.dir, base) || c.stayed(base) {
		return nil
	}
	return replaceLink(own, name, base)
}

// remove removes the certificate that nodeapi signed itself, links that lead nowhere,
// and the folders that are empty then.
func (c certFolder) remove() error {
	var all []error
	remove := func(path string) {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			all = append(all, err)
		}
	}
	for _, s := range c.all() {
		own := house.CertDir(c.dir, s.service)
		for _, name := range s.plain {
			remove(filepath.Join(own, name))
		}
		for _, name := range s.linked() {
			if _, err := os.Stat(filepath.Join(c.dir, name)); errors.Is(err, fs.ErrNotExist) {
				remove(filepath.Join(c.dir, name))
			}
		}
		remove(own)
	}
	return errors.Join(all...)
}

// replaceLink gives a name in a folder to a link in one step.
func replaceLink(dir, name, to string) error {
	d, err := os.OpenFile(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // read only
	fresh := name + file.Half
	err = unix.Unlinkat(int(d.Fd()), fresh, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		err = unix.Symlinkat(to, int(d.Fd()), fresh)
	}
	if err == nil {
		err = unix.Renameat(int(d.Fd()), fresh, int(d.Fd()), name)
	}
	if err != nil {
		return &fs.PathError{Op: "link", Path: filepath.Join(dir, name), Err: err}
	}
	return nil
}
