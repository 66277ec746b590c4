// SPDX-License-Identifier: Apache-2.0

// Command image assembles the image of a release from its Debian packages: for each
// architecture the program, which installs the package beside it (sextant install).
//
//	image -name NAME -o FILE.tar PACKAGE.deb...
//
// FILE is an archive of an OCI layout that `ctr images import` and `docker load` read. The
// same packages give the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sextant-node/sextant/pkg/deb"
)

func main() {
	name := flag.String("name", "", "name and tag of the image")
	out := flag.String("o", "", "the archive to write")
	flag.Parse()
	if err := run(*name, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(name, out string, packages []string) error {
	if name == "" || out == "" || len(packages) == 0 {
		return errors.New("want -name, -o and packages")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, file := range packages {
		img, arch, err := imageOf(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	dir, err := os.MkdirTemp("", "sextant-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary directory harms nothing
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tag := name[strings.LastIndex(name, ":")+1:]
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": name,
	})); err != nil {
		return err
	}
	return pack(dir, out)
}

// imageOf is the image of one package, and its architecture.
func imageOf(file string) (v1.Image, string, error) {
	arch := strings.TrimSuffix(file[strings.LastIndex(file, "_")+1:], ".deb")
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	program, err := deb.File(bytes.NewReader(content), deb.Data, "/usr/lib/sextant/sextant")
	if err != nil {
		return nil, "", err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	// The program changes with each build, as the package does: one layer for both.
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, f := range []struct {
		name string
		mode int64
		body []byte
	}{{"sextant", 0o755, program}, {"sextant.deb", 0o644, content}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.body)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}); err != nil {
			return nil, "", err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, "", err
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, "", err
	}
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, "", err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, "", err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{Entrypoint: []string{"/sextant"}, Cmd: []string{"install"}, Env: []string{"PATH=/"}}
	img, err = mutate.ConfigFile(img, config)
	return img, arch, err
}

// pack writes a folder as an archive without times and owners, in the order of names.
func pack(dir, out string) error {
	to, err := os.Create(out)
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Name: name + "/", Mode: 0o755, Typeflag: tar.TypeDir, Format: tar.FormatUSTAR})
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	})
	return errors.Join(err, w.Close(), to.Close())
}
