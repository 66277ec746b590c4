// SPDX-License-Identifier: Apache-2.0

// Package measure says how full a folder is: by the file system, where a volume
// is a mount of its own, which a folder that is bound there is as well, else by looking at
// every file. Of a block device it says how large it is.
//
// It follows no link and leaves no device, whatever a container does to its
// volume meanwhile: each step goes from an open folder to a name in it.
package measure

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/mounts"
)

// Source says how a reading was made.
type Source string

// The sources, by upstream's names where it has one.
const (
	StatFS Source = "statfs"
	Du     Source = "du"
	Block  Source = "block"
)

// Reading is how full a folder and its file system are, in bytes and inodes.
type Reading struct {
	Source                       Source
	Capacity, Available, Used    uint64
	Inodes, InodesFree, InodesIn uint64
	// Health is what the volume's driver says of it; nil when it says nothing.
	Health *Health
}

// Health of a volume.
type Health struct {
	Abnormal bool
	// Message is for people.
	Message string
}

// Volume measures a volume, a folder or a block device. It may hang with the file system
// that it is on.
func Volume(path string) (*Reading, error) {
	var root unix.Stat_t
	if err := unix.Stat(path, &root); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if root.Mode&unix.S_IFMT == unix.S_IFBLK {
		return device(root.Rdev)
	}
	return folder(path)
}

const sector = 512 // sysfs counts in it, whatever the device's own is

// device is the size of a block device. It is not opened: one that does not answer would
// be waited for.
func device(number uint64) (*Reading, error) {
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/size", unix.Major(number), unix.Minor(number)))
	if err != nil {
		return nil, err
	}
	sectors, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return nil, err
	}
	return &Reading{Source: Block, Capacity: sectors * sector}, nil
}

func folder(path string) (*Reading, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", path, err)
	}
	size := uint64(mounts.BlockSize(&fs))
	r := &Reading{
		Source: StatFS, Capacity: fs.Blocks * size, Available: fs.Bavail * size, Used: (fs.Blocks - fs.Bfree) * size,
		Inodes: fs.Files, InodesFree: fs.Ffree, InodesIn: fs.Files - fs.Ffree,
	}
	own, err := mounts.On(path)
	if err != nil {
		return nil, err
	}
	if own {
		return r, nil
	}
	var self unix.Stat_t
	if err := unix.Lstat(path, &self); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	r.Source = Du
	w := walker{device: self.Dev, linked: map[uint64]bool{}}
	w.count(&self)
	if err := w.walk(unix.AT_FDCWD, path); err != nil {
		return nil, err
	}
	r.Used, r.InodesIn = w.bytes, w.inodes
	return r, nil
}

type walker struct {
	device        uint64
	bytes, inodes uint64
	// linked are the inodes with several names, counted once.
	linked map[uint64]bool
	depth  int
}

// deepest is how far down is looked: each level costs an open file, and a
// container chooses the levels.
const deepest = 400

const block = 512 // stat(2): st_blocks

func (w *walker) count(st *unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if w.linked[st.Ino] {
			return
		}
		w.linked[st.Ino] = true
	}
	w.bytes += uint64(st.Blocks) * block
	w.inodes++
}

// walk counts what is in a folder. What goes meanwhile is not counted.
func (w *walker) walk(at int, name string) error {
	if w.depth++; w.depth > deepest {
		return fmt.Errorf("folders are nested deeper than %d", deepest)
	}
	defer func() { w.depth-- }()
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return fmt.Errorf("open %s: %w", name, err)
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close() //nolint:errcheck // read only
	for {
		entries, err := dir.Readdirnames(256)
		for _, entry := range entries {
			var st unix.Stat_t
			if err := unix.Fstatat(fd, entry, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Dev != w.device {
				continue
			}
			w.count(&st)
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if err := w.walk(fd, entry); err != nil {
					return err
				}
			}
		}
		if err != nil { // io.EOF, or the folder went
			return nil
		}
	}
}
