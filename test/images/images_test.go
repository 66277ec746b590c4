// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

// files lists the paths of an image's root file system with their modes.
func files(t *testing.T, img v1.Image) map[string]int64 {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	found := map[string]int64{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = h.Mode
	}
}

func TestImagesAreReproducible(t *testing.T) {
	for _, ref := range []string{Pause, Hello} {
		t.Run(ref, func(t *testing.T) {
			b := Builder{Source: "."}
			one, err := b.Image(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			two, err := b.Image(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if digest(t, one) != digest(t, two) {
				t.Errorf("%s and %s from the same sources", digest(t, one), digest(t, two))
			}
		})
	}
}

func TestPauseHoldsOneProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pause.tar")
	if err := (Builder{Source: "."}).Save(t.Context(), Pause, file); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(Pause)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	got := files(t, img)
	if mode, ok := got["pause"]; len(got) != 1 || !ok || mode != 0o755 {
		t.Errorf("files = %v, want an executable pause alone", got)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cf.Config.Entrypoint, []string{"/pause"}) || cf.Config.User != nobody || cf.OS != "linux" || cf.Architecture == "" {
		t.Errorf("configuration = %+v", cf)
	}
}

func TestUnknownImage(t *testing.T) {
	if _, err := (Builder{Source: "."}).Image(t.Context(), "sextant.local/other:v1"); err == nil {
		t.Error("an unknown image was built")
	}
}

func TestFailedBuildSaysWhy(t *testing.T) {
	if _, err := (Builder{Source: t.TempDir()}).Image(t.Context(), Pause); err == nil {
		t.Error("a build outside the module worked")
	}
}
