// SPDX-License-Identifier: Apache-2.0

package install

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// member opens a member of a Debian package (deb(5)), an archive of ar(1), without
// compression.
func member(deb io.ReaderAt, prefix string) (io.Reader, error) {
	const magic, header = "!<arch>\n", 60
	head := make([]byte, header)
	if _, err := deb.ReadAt(head[:len(magic)], 0); err != nil || string(head[:len(magic)]) != magic {
		return nil, fmt.Errorf("no Debian package: %w", errors.Join(err, fs.ErrInvalid))
	}
	for at := int64(len(magic)); ; {
		if _, err := deb.ReadAt(head, at); err != nil {
			return nil, fmt.Errorf("the package has no %s: %w", prefix, err)
		}
		size, err := strconv.ParseInt(strings.TrimSpace(string(head[48:58])), 10, 64)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("the package has a member of size %q", head[48:58])
		}
		name := strings.TrimSuffix(strings.TrimSpace(string(head[:16])), "/")
		at += header
		if strings.HasPrefix(name, prefix) {
			return gzip.NewReader(bufio.NewReader(io.NewSectionReader(deb, at, size)))
		}
		at += size + size%2
	}
}

// script is one of the package's scripts.
func script(deb io.ReaderAt, name string) ([]byte, error) {
	control, err := member(deb, "control.tar")
	if err != nil {
		return nil, err
	}
	files := tar.NewReader(control)
	for {
		h, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("the package has no script %s: %w", name, err)
		}
		if path.Clean("/"+h.Name) == "/"+name {
			return io.ReadAll(files)
		}
	}
}

// unpack writes the files of a package below root. Those that an administrator may have
// changed (kept) stay as they are.
func unpack(deb io.ReaderAt, root string, kept func(path string) bool) error {
	data, err := member(deb, "data.tar")
	if err != nil {
		return err
	}
	files := tar.NewReader(data)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(root, filepath.FromSlash(path.Clean("/"+h.Name)))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, h.FileInfo().Mode().Perm())
		case tar.TypeSymlink:
			err = replace(to, func(fresh string) error { return os.Symlink(h.Linkname, fresh) })
		case tar.TypeReg:
			if _, there := os.Lstat(to); there == nil && kept(path.Clean("/"+h.Name)) {
				continue
			}
			err = replace(to, func(fresh string) error { return write(fresh, files, h.FileInfo().Mode().Perm()) })
		default:
			err = fmt.Errorf("a file of type %q", h.Typeflag)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// replace puts a file where another may be, in one step.
func replace(to string, create func(fresh string) error) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	fresh := to + ".sextant-new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(create(fresh), os.Rename(fresh, to))
}

func write(to string, from io.Reader, mode fs.FileMode) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Chmod(mode), out.Sync(), out.Close())
}
