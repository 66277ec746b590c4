// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri/internal/shell"
)

// imageRecord is an image on the node. Only refs changes, under Runtime.mu.
type imageRecord struct {
	id       string
	refs     []string // normalized: tags and digests
	size     uint64
	uid      *int64
	username string
	pinned   bool
	script   string
	programs map[string]*shell.Script
}

// registryEntry is what the registry answers for a reference.
type registryEntry struct {
	image    Image
	withheld bool
	slow     time.Duration
}

// normalize completes a reference as containerd does; the error is the parser's.
func normalize(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, err
	}
	return named, nil
}

// record makes the node's view of an image known under the name.
func record(img Image, named reference.Named) (*imageRecord, error) {
	rec := &imageRecord{
		id: img.ID, size: img.Size, uid: img.UID, username: img.Username, pinned: img.Pinned, script: img.Script,
		programs: map[string]*shell.Script{},
	}
	if rec.id == "" {
		rec.id = digestOf("config", named.String())
	}
	if rec.size == 0 {
		rec.size = 1 << 20
	}
	if rec.script == "" {
		rec.script = conventional(named)
	}
	if _, err := shell.Parse(rec.script); err != nil {
		return nil, fmt.Errorf("%s: script: %w", img.Ref, err)
	}
	for name, text := range img.Programs {
		s, err := shell.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: programs[%s]: %w", img.Ref, name, err)
		}
		rec.programs[name] = s
	}
	// A tag comes with the digest it stands for.
	rec.refs = []string{named.String()}
	if _, isDigest := named.(reference.Digested); !isDigest {
		if d, err := reference.WithDigest(reference.TrimNamed(named), digest.Digest(digestOf("manifest", rec.id))); err == nil {
			rec.refs = append(rec.refs, d.String())
		}
	}
	return rec, nil
}

// conventional is the program of the images "fake/…" ("" for all others).
func conventional(named reference.Named) string {
	name, ok := strings.CutPrefix(reference.Path(named), "fake/")
	if !ok {
		return ""
	}
	tag := "0"
	if t, ok := named.(reference.Tagged); ok && t.Tag() != "latest" {
		tag = t.Tag()
	}
	switch name {
	case "exit":
		return "exit " + tag
	case "oom":
		return "oom"
	case "ignore-term":
		return "ignore-term; sleep infinity"
	}
	return ""
}

func digestOf(kind, name string) string {
	sum := sha256.Sum256([]byte("fakecri/" + kind + "/" + name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// program finds an executable of the image.
func (i *imageRecord) program(name string) (*shell.Script, bool) {
	s, ok := i.programs[name]
	return s, ok
}

func (i *imageRecord) tags() (tags, digests []string) {
	for _, ref := range i.refs {
		if strings.Contains(ref, "@") {
			digests = append(digests, ref)
		} else {
			tags = append(tags, ref)
		}
	}
	return tags, digests
}

// name is what a container's status calls its image.
func (i *imageRecord) name() string {
	tags, digests := i.tags()
	return append(append(tags, digests...), i.id)[0]
}

// reference is a container's image_ref: the repo digest, or else the ID.
func (i *imageRecord) reference() string {
	_, digests := i.tags()
	return append(digests, i.id)[0]
}

func (i *imageRecord) message() *runtimeapi.Image {
	tags, digests := i.tags()
	m := &runtimeapi.Image{Id: i.id, RepoTags: tags, RepoDigests: digests, Size: i.size, Username: i.username, Pinned: i.pinned}
	if i.uid != nil {
		m.Uid = &runtimeapi.Int64Value{Value: *i.uid}
	}
	return m
}

// resolveImage finds an image on the node by reference, ID or part of an ID.
func (w *world) resolveImage(ref string) *imageRecord {
	if img, ok := w.images[ref]; ok {
		return img
	}
	if named, err := normalize(ref); err == nil {
		if img, ok := w.images[w.refs[named.String()]]; ok {
			return img
		}
	}
	if ref == "" {
		return nil
	}
	img, _ := byID(w.images, "sha256:"+strings.TrimPrefix(ref, "sha256:"))
	return img
}

// store adds an image to the node, or its names to one that is there.
func (w *world) store(rec *imageRecord) *imageRecord {
	if old, ok := w.images[rec.id]; ok {
		for _, ref := range rec.refs {
			if !slices.Contains(old.refs, ref) {
				old.refs = append(old.refs, ref)
			}
		}
		rec = old
	}
	w.images[rec.id] = rec
	for _, ref := range rec.refs {
		w.moveRef(ref, rec.id)
	}
	return rec
}

// moveRef gives a name to an image, taking it from the one that had it.
func (w *world) moveRef(ref, id string) {
	if old, ok := w.images[w.refs[ref]]; ok && old.id != id {
		old.refs = slices.DeleteFunc(old.refs, func(r string) bool { return r == ref })
	}
	w.refs[ref] = id
}

func (w *world) dropImage(rec *imageRecord) {
	delete(w.images, rec.id)
	for _, ref := range rec.refs {
		delete(w.refs, ref)
	}
}
