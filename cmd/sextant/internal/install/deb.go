// SPDX-License-Identifier: Apache-2.0

package install

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sextant-node/sextant/pkg/deb"
	"github.com/sextant-node/sextant/pkg/file"
)

// unpack writes the files of a package below root. Those that an administrator may have
// changed (kept) stay as they are.
func unpack(pack io.ReaderAt, root string, kept func(path string) bool) error {
	files, err := deb.Files(pack, deb.Data)
	if err != nil {
		return err
	}
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := deb.Name(h)
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, h.FileInfo().Mode().Perm())
		case tar.TypeSymlink:
			err = file.Link(to, h.Linkname)
		case tar.TypeReg:
			if _, there := os.Lstat(to); there == nil && kept(name) {
				continue
			}
			err = replace(to, files, h.FileInfo().Mode().Perm())
		default:
			err = fmt.Errorf("a file of type %q", h.Typeflag)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// replace puts a file where another may be, in one step: file.Replace for what is too
// large to be in memory.
func replace(to string, from io.Reader, mode fs.FileMode) error {
	fresh := to + ".sextant-new"
	if err := os.RemoveAll(fresh); err != nil { // of an earlier life
		return err
	}
	if err := write(fresh, from, mode); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return os.Rename(fresh, to)
}

func write(to string, from io.Reader, mode fs.FileMode) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Chmod(mode), out.Sync(), out.Close())
}
