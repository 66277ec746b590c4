// SPDX-License-Identifier: Apache-2.0

// Package deb reads Debian packages (deb(5)) whose members are compressed with gzip, as
// those of this project are. It owns and writes nothing.
package deb

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Members of a package.
const (
	// Control has the package's scripts.
	Control = "control.tar"
	// Data has the files that it installs.
	Data = "data.tar"
)

// Files reads a member's files. The error wraps fs.ErrInvalid for what is no package, and
// fs.ErrNotExist for a package without that member.
func Files(deb io.ReaderAt, member string) (*tar.Reader, error) {
	const magic, header = "!<arch>\n", 60 // ar(5)
	head := make([]byte, header)
	if _, err := deb.ReadAt(head[:len(magic)], 0); err != nil || string(head[:len(magic)]) != magic {
		return nil, fmt.Errorf("no Debian package: %w", errors.Join(err, fs.ErrInvalid))
	}
	for at := int64(len(magic)); ; {
		if _, err := deb.ReadAt(head, at); err != nil {
			return nil, fmt.Errorf("the package has no %s: %w", member, errors.Join(err, fs.ErrNotExist))
		}
		size, err := strconv.ParseInt(strings.TrimSpace(string(head[48:58])), 10, 64)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("the package has a member of size %q: %w", head[48:58], fs.ErrInvalid)
		}
		at += header
		if name := strings.TrimSuffix(strings.TrimSpace(string(head[:16])), "/"); name == member+".gz" {
			data, err := gzip.NewReader(bufio.NewReader(io.NewSectionReader(deb, at, size)))
			if err != nil {
				return nil, fmt.Errorf("%s of the package: %w", member, err)
			}
			return tar.NewReader(data), nil
		}
		at += size + size%2
	}
}

// Name is where a file of Data is installed: a clean absolute path.
func Name(h *tar.Header) string { return path.Clean("/" + h.Name) }

// File reads one file of a member, named as Name names it.
func File(deb io.ReaderAt, member, name string) ([]byte, error) {
	files, err := Files(deb, member)
	if err != nil {
		return nil, err
	}
	for {
		h, err := files.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fs.ErrNotExist
			}
			return nil, fmt.Errorf("%s of the package: %s: %w", member, name, err)
		}
		if Name(h) == name {
			return io.ReadAll(files)
		}
	}
}
