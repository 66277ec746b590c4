// SPDX-License-Identifier: Apache-2.0

// Package images assembles the container images that Sextant is shown and tested
// with. Nothing is downloaded: each image is one layer around a program that is
// built from this repository, or around the machine's static busybox.
//
// The same sources give the same digest: files carry no times, no owners but
// root and no build paths.
package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The names under which the images are known everywhere in this repository.
const (
	// Pause is the sandbox image: one small process that reaps.
	Pause = "sextant.local/pause:v1"
	// Hello is the example workload; see the command hello for what it serves.
	Hello = "sextant.local/hello:v1"
	// Busybox is a shell with the usual tools.
	Busybox = "sextant.local/busybox:v1"
)

// nobody runs what needs no rights.
const nobody = "65535:65535"

// Builder builds images.
type Builder struct {
	// Source is a directory inside this module, where the programs are built.
	Source string
	// Arch is the target's GOARCH; empty means this machine's.
	Arch string
}

// ErrUnknown says that nobody here knows how to make an image.
var ErrUnknown = errors.New("unknown image")

// Image assembles the image of one of the names above.
func (b Builder) Image(ctx context.Context, ref string) (v1.Image, error) {
	img, err := b.image(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	return img, nil
}

func (b Builder) image(ctx context.Context, ref string) (v1.Image, error) {
	switch ref {
	case Pause:
		bin, err := b.program(ctx, "pause")
		if err != nil {
			return nil, err
		}
		return b.assemble([]file{program("pause", bin)}, v1.Config{Entrypoint: []string{"/pause"}, User: nobody})
	case Hello:
		bin, err := b.program(ctx, "hello")
		if err != nil {
			return nil, err
		}
		return b.assemble(append(base(), program("hello", bin)), v1.Config{
			Entrypoint:   []string{"/hello"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			StopSignal:   "SIGTERM",
		})
	case Busybox:
		return b.busybox(ctx)
	default:
		return nil, fmt.Errorf("not one of %s, %s, %s", Pause, Hello, Busybox)
	}
}

// Save assembles an image and writes it as an archive that both `ctr images
// import` and `docker load` read. The archive appears whole or not at all.
func (b Builder) Save(ctx context.Context, ref, path string) error {
	img, err := b.Image(ctx, ref)
	if err != nil {
		return err
	}
	return save(ref, img, path)
}

func save(ref string, img v1.Image, path string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	if err := tarball.WriteToFile(path+".new", tag, img); err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	return nil
}

// program builds one of the commands beside this package as a static binary.
func (b Builder) program(ctx context.Context, cmd string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "sextant-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary directory harms nothing
	out := filepath.Join(dir, cmd)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=",
		"-o", out, "github.com/sextant-node/sextant/test/images/"+cmd)
	build.Dir = b.Source
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=")
	if b.Arch != "" {
		build.Env = append(build.Env, "GOARCH="+b.Arch)
	}
	if msg, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", cmd, err, strings.TrimSpace(string(msg)))
	}
	return os.ReadFile(out)
}

func (b Builder) assemble(files []file, cfg v1.Config) (v1.Image, error) {
	raw, err := layer(files)
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture, cf.Config = "linux", b.arch(), cfg
	return mutate.ConfigFile(img, cf)
}

// file is one entry of a layer.
type file struct {
	path string
	mode int64
	link string // target of a symbolic link
	body []byte
	dir  bool
}

func program(path string, body []byte) file { return file{path: path, mode: 0o755, body: body} }

// base is what programs expect of a root file system.
func base() []file {
	return []file{
		{path: "etc", dir: true, mode: 0o755},
		{path: "etc/passwd", mode: 0o644, body: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{path: "etc/group", mode: 0o644, body: []byte("root:x:0:\nnobody:x:65534:\n")},
		{path: "root", dir: true, mode: 0o700},
		{path: "tmp", dir: true, mode: 0o1777},
	}
}

func layer(files []file) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.body)), Typeflag: tar.TypeReg}
		switch {
		case f.dir:
			h.Typeflag, h.Name = tar.TypeDir, f.path+"/"
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
