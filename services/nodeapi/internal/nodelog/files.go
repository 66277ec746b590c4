// SPDX-License-Identifier: Apache-2.0

package nodelog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sextant-node/sextant/pkg/file"
)

// Tree is a folder as an fs.FS that nothing leads out of. Links are followed, absolute ones
// too, if they end below the folder.
type Tree struct{ Dir string }

// Open implements fs.FS. What is outside, or neither a plain file nor a folder, is
// forbidden; a name that no file can have does not exist.
func (t Tree) Open(name string) (fs.File, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

func (t Tree) open(name string) (*os.File, error) {
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) {
		return nil, fs.ErrNotExist
	}
	dir, err := filepath.EvalSymlinks(t.Dir)
	if err != nil {
		return nil, bare(err)
	}
	real, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	var failed *fs.PathError
	if err != nil && !errors.As(err, &failed) {
		return nil, fs.ErrNotExist // links without end
	}
	if err != nil {
		return nil, bare(err)
	}
	inside, err := filepath.Rel(dir, real)
	if err != nil || !filepath.IsLocal(inside) {
		return nil, fs.ErrPermission
	}
	// A link may have replaced what was resolved: the root lets none out. Without
	// O_NONBLOCK a pipe would block.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, bare(err)
	}
	defer root.Close() //nolint:errcheck // a folder that was only looked through
	f, err := root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, bare(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = fs.ErrPermission
	}
	if err != nil {
		return nil, errors.Join(bare(err), f.Close())
	}
	return f, nil
}

// bare strips the path from an error and makes every errno for a name that does not exist
// fs.ErrNotExist.
func bare(err error) error {
	err = file.Cause(err)
	for _, absent := range []error{syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EINVAL} {
		if errors.Is(err, absent) {
			return fs.ErrNotExist
		}
	}
	// Sockets, devices without a driver, links that were made just now.
	if errors.Is(err, syscall.ENXIO) || strings.Contains(fmt.Sprint(err), "escapes") {
		return fs.ErrPermission
	}
	return err
}
