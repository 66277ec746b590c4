// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/file"
)

// sharedMode lets every user of a container read the file.
const sharedMode fs.FileMode = 0o644

// writeShared gives a file that containers have mounted, and may write to, its content:
// in place, for running ones see it. What a container has made of it does not matter: how
// long it is, and what there is instead. One that is not to be written to (a container
// has given it away) is replaced, and that container keeps its copy.
func writeShared(path string, content []byte) error {
	err := rewrite(path, os.O_CREATE, content)
	if err == nil || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errNotRegular) && !errors.Is(err, unix.ELOOP) {
		return err
	}
	if err := file.Remove(path); err != nil {
		return err
	}
	return rewrite(path, os.O_CREATE|os.O_EXCL, content)
}

func rewrite(path string, flags int, content []byte) error {
	f, err := os.OpenFile(path, flags|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, sharedMode)
	if err != nil {
		return err
	}
	return errors.Join(fill(f, content), f.Close())
}

func fill(f *os.File, content []byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errNotRegular
	}
	if !holds(f, info.Size(), content) {
		if err := f.Truncate(0); err != nil {
			return err
		}
		if _, err := f.WriteAt(content, 0); err != nil {
			return err
		}
	}
	return f.Chmod(sharedMode) // whatever the umask, and whatever a container made of it
}

// holds reports whether a file of some size has the content. No more is read than that.
func holds(f *os.File, size int64, content []byte) bool {
	if size != int64(len(content)) {
		return false
	}
	have, err := io.ReadAll(io.LimitReader(f, size))
	return err == nil && bytes.Equal(have, content)
}
