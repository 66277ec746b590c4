// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/manifest"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/problem"
)

// found is one manifest file: its bytes, or why there are none.
type found struct {
	path string
	data []byte
	err  error
}

// list reads every manifest at path: the file itself, or the files of a folder,
// by name. Hidden files are skipped. A path that does not exist holds none.
// The error is for a path that cannot be listed at all.
func list(path string) ([]found, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s: dangling link", path)
		}
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, file.Cause(err))
	case !info.IsDir():
		data, err := read(path)
		return []found{{path, data, err}}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, file.Cause(err))
	}
	var all []found
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		name := filepath.Join(path, e.Name())
		data, err := read(name)
		if errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink == 0 {
			continue // gone since the folder was read
		}
		all = append(all, found{name, data, err})
	}
	return all, nil
}

var (
	errFolder  = errors.New("is a folder: manifests are not looked for below the manifest folder")
	errSpecial = errors.New("is not a regular file")
	errSize    = fmt.Errorf("is larger than %d MiB", manifest.MaxSize>>20)
)

// read reads one manifest. Opening does not block on a FIFO, and what was
// opened is checked again.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, file.Cause(err)
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, file.Cause(err)
	}
	defer func() { _ = f.Close() }() // only read
	if info, err = f.Stat(); err != nil {
		return nil, file.Cause(err)
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	data, err := file.Bounded(f, manifest.MaxSize, errSize)
	return data, file.Cause(err)
}

func regular(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return errFolder
	case !info.Mode().IsRegular():
		return errSpecial
	}
	return nil
}

// Read reads every manifest at path once, as a [Source] does.
func Read(path, node string) ([]merge.Entry, error) {
	files, err := list(path)
	entries := make([]merge.Entry, 0, len(files))
	for _, f := range files {
		entries = append(entries, decodeFile(f, node))
	}
	return entries, err
}

// decodeFile turns a file into an entry.
func decodeFile(f found, node string) merge.Entry {
	if f.err != nil {
		return merge.Entry{Origin: f.path, Problem: &merge.Problem{Origin: f.path, Message: f.err.Error()}}
	}
	return Decode(f.path, node, f.data)
}

// Decode turns the bytes of a file into one pod, with what has no effect in it, or one
// problem, whatever they are.
func Decode(path, node string, data []byte) merge.Entry {
	pods, ignored, err := manifest.Decode(data, manifest.Source{Kind: pod.SourceFile, Path: path, NodeName: types.NodeName(node)})
	if err == nil && len(pods) != 1 {
		err = errors.New("a file holds one pod")
	}
	if err != nil {
		return merge.Entry{Origin: path, Problem: new(problem.Of(path, err))}
	}
	entry := merge.Entry{Origin: path, Pods: []*v1.Pod{pods[0]}}
	if ignored != nil {
		entry.Ignored = new(problem.Of(path, ignored))
	}
	return entry
}
