// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/file"
)

// ownedFolder is a folder that root creates for a service. The folder above it is
// root's; the service may change the contents at any moment, so all work in it is done
// by descriptors.
type ownedFolder struct {
	path string
	mode fs.FileMode
	own  Account
	// roots: root's files in it are given to the service too: a kubelet also uses the
	// folder, or an operator put files there.
	roots bool
}

func (o ownedFolder) ensure() error {
	if info, err := os.Stat(o.path); err == nil && !info.IsDir() {
		if _, err := file.Aside(o.path, time.Now()); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.path, o.mode); err != nil {
		return err
	}
	dir, err := os.OpenFile(o.path, unix.O_DIRECTORY, 0) // an operator may have put a link to another disk
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // read only
	var is unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &is); err != nil {
		return &fs.PathError{Op: "stat", Path: o.path, Err: err}
	}
	if err := o.adopt(dir, is.Uid, 0); err != nil {
		return err
	}
	return give(dir, o.own, o.mode)
}

// give sets owner and mode of a folder, only if they differ: it may be on a disk that
// takes no writes.
func give(dir *os.File, own Account, mode fs.FileMode) error {
	var is unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &is); err != nil {
		return &fs.PathError{Op: "stat", Path: dir.Name(), Err: err}
	}
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	const bits = fs.ModePerm | fs.ModeSetgid | fs.ModeSetuid | fs.ModeSticky
	if info.Mode()&bits == mode && is.Uid == own.UID && is.Gid == own.GID {
		return nil
	}
	return errors.Join(dir.Chown(int(own.UID), int(own.GID)), dir.Chmod(mode))
}

const (
	// beneath makes openat2 stay in the folder and on its mount, and follow no link.
	beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	// mostDeep limits the depth of the walk: more than any folder of the kubelet or of
	// a service's state has.
	mostDeep = 32
	// names is how many names of a folder are read at a time.
	names = 1024
)

// adopt gives a service the files in its folder that belong to its former uid (a node
// changes between uids when it changes between the supervisor and the units), and with
// roots those of root: podworker has to read and write the files that a kubelet made,
// and root still can when the kubelet comes back. Contents of volumes belong to the
// pods and are skipped. Links are not followed, and a file of root with a second name
// is skipped: that name may be anywhere.
func (o ownedFolder) adopt(dir *os.File, before uint32, deep int) error {
	for {
		entries, err := dir.ReadDir(names)
		for _, e := range entries {
			if err := o.adoptOne(dir, e.Name(), before, deep); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (o ownedFolder) adoptOne(dir *os.File, name string, before uint32, deep int) error {
	fail := func(op string, err error) error {
		return &fs.PathError{Op: op, Path: dir.Name() + "/" + name, Err: err}
	}
	at, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return nil // pods go on meanwhile; another mount is no part of it
	}
	if err != nil {
		return fail("open", err)
	}
	defer unix.Close(at) //nolint:errcheck // a path only
	var is unix.Stat_t
	if err := unix.Fstat(at, &is); err != nil {
		return fail("stat", err)
	}
	folder := is.Mode&unix.S_IFMT == unix.S_IFDIR
	if folder && (name == "volumes" || name == "volume-subpaths" || name == "volumeDevices" || name == "plugins") {
		return nil
	}
	if o.takes(&is, before) {
		if err := unix.Fchownat(at, "", int(o.own.UID), int(o.own.GID), unix.AT_EMPTY_PATH); err != nil {
			return fail("chown", err)
		}
	}
	if !folder || deep == mostDeep {
		return nil
	}
	inner, err := unix.Openat2(at, ".", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return fail("open", err)
	}
	f := os.NewFile(uintptr(inner), dir.Name()+"/"+name)
	defer f.Close() //nolint:errcheck // read only
	return o.adopt(f, before, deep+1)
}

// takes reports whether a file or folder is given to the service.
func (o ownedFolder) takes(is *unix.Stat_t, before uint32) bool {
	switch is.Uid {
	case o.own.UID:
		return false
	case 0:
		return o.roots && (is.Mode&unix.S_IFMT != unix.S_IFREG || is.Nlink == 1)
	}
	return is.Uid == before
}
