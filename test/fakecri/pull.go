// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Preload puts an image on the node. A bad reference or script panics: it is a
// mistake in the test.
func (r *Runtime) Preload(img Image) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.preload(img); err != nil {
		panic("fakecri: preload: " + err.Error())
	}
	r.notify()
}

func (r *Runtime) preload(img Image) error {
	named, err := normalize(img.Ref)
	if err != nil {
		return fmt.Errorf("%q: %w", img.Ref, err)
	}
	rec, err := record(img, named)
	if err != nil {
		return err
	}
	r.store(rec)
	return nil
}

// Provide has the registry serve an image; what was said of its reference
// before no longer counts. A bad reference or script panics.
func (r *Runtime) Provide(img Image) {
	named, err := normalize(img.Ref)
	if err == nil {
		_, err = record(img, named)
	}
	if err != nil {
		panic("fakecri: provide: " + err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registry[named.String()] = registryEntry{image: img}
}

// Withhold has the registry answer NotFound; Provide brings the image back.
func (r *Runtime) Withhold(ref string) {
	r.editEntry(ref, func(e *registryEntry) { e.withheld = true })
}

// SlowPull makes pulls of a reference take d on the clock.
func (r *Runtime) SlowPull(ref string, d time.Duration) {
	r.editEntry(ref, func(e *registryEntry) { e.slow = d })
}

func (r *Runtime) editEntry(ref string, edit func(*registryEntry)) {
	named, err := normalize(ref)
	if err != nil {
		panic("fakecri: " + err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(named)
	edit(&e)
	r.registry[named.String()] = e
}

// entry is what the registry has: by default every image anyone asks for.
func (r *Runtime) entry(named reference.Named) registryEntry {
	if e, ok := r.registry[named.String()]; ok {
		return e
	}
	e := registryEntry{image: Image{Ref: named.String()}}
	switch reference.Path(named) {
	case "fake/missing":
		e.withheld = true
	case "fake/denied":
		e.image.Login = &runtimeapi.AuthConfig{Username: "nobody", Password: "guesses this"}
	}
	return e
}

// imageServer is the ImageService; what it does not have is Unimplemented.
type imageServer struct {
	runtimeapi.UnimplementedImageServiceServer
	r *Runtime
}

func (s *imageServer) PullImage(ctx context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	r := s.r
	ref := req.GetImage().GetImage()
	named, err := normalize(ref)
	if err != nil {
		return nil, failure("failed to parse image reference %q: %v", ref, err)
	}
	r.mu.Lock()
	e := r.entry(named)
	r.mu.Unlock()
	if e.slow > 0 {
		if err := r.sleep(ctx, e.slow); err != nil {
			return nil, err
		}
		r.mu.Lock()
		e = r.entry(named)
		r.mu.Unlock()
	}
	if e.withheld {
		return nil, status.Errorf(codes.NotFound,
			"failed to pull and unpack image %q: failed to resolve reference %[1]q: %[1]s: not found", named.String())
	}
	if l := e.image.Login; l != nil && (req.GetAuth().GetUsername() != l.GetUsername() || req.GetAuth().GetPassword() != l.GetPassword()) {
		return nil, failure("failed to pull and unpack image %q: failed to resolve reference %[1]q: pull access denied, "+
			"repository does not exist or may require authorization: authorization failed: no basic auth credentials", named.String())
	}
	rec, err := record(e.image, named)
	if err != nil {
		return nil, failure("failed to pull and unpack image %q: %v", named.String(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec = r.store(rec)
	r.notify()
	return &runtimeapi.PullImageResponse{ImageRef: rec.id}, nil
}

func (s *imageServer) ListImages(_ context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListImagesResponse{}
	// As in containerd, the filter is not looked at.
	for _, img := range r.images {
		resp.Images = append(resp.Images, img.message())
	}
	slices.SortFunc(resp.Images, func(a, b *runtimeapi.Image) int { return strings.Compare(a.Id, b.Id) })
	return resp, nil
}

func (s *imageServer) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	img := r.resolveImage(req.GetImage().GetImage())
	if img == nil {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	resp := &runtimeapi.ImageStatusResponse{Image: img.message()}
	if req.GetVerbose() {
		resp.Info = info(map[string]any{"chainID": img.id, "imageSpec": map[string]any{"os": "linux"}})
	}
	return resp, nil
}

func (s *imageServer) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if img := r.resolveImage(req.GetImage().GetImage()); img != nil {
		r.dropImage(img)
		r.notify()
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (s *imageServer) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	var used uint64
	for _, img := range r.images {
		used += img.size
	}
	fs := &runtimeapi.FilesystemUsage{
		Timestamp:  r.now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: imageFilesystem},
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(r.images)) * 10},
	}
	resp := &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{fs}}
	if r.cfg.Flavor != Containerd16 {
		resp.ContainerFilesystems = []*runtimeapi.FilesystemUsage{fs}
	}
	return resp, nil
}

// imageFilesystem is a path that exists wherever the tests run.
const imageFilesystem = "/"
