// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var imageTests = []test{
	{"pull, status and list agree", func(e *env) {
		ref := e.target.Images.Shell
		id, err := e.pull(ref)
		e.ok("PullImage", err)
		if id == "" {
			e.Fatal("PullImage: no image reference")
		}
		img := e.image(ref)
		if img == nil {
			e.Fatalf("ImageStatus(%s) finds nothing after the pull", ref)
		}
		if img.GetId() != id || img.GetSize() == 0 || len(img.GetRepoTags()) == 0 {
			e.Errorf("pulled %q, status %v", id, img)
		}
		if byID := e.image(id); byID.GetId() != id {
			e.Errorf("ImageStatus by ID finds %v", byID)
		}
		list, err := e.images.ListImages(e.ctx, &runtimeapi.ListImagesRequest{})
		e.ok("ListImages", err)
		found := slices.ContainsFunc(list.GetImages(), func(i *runtimeapi.Image) bool {
			return i.GetId() == id && slices.Equal(i.GetRepoTags(), img.GetRepoTags())
		})
		if !found {
			e.Errorf("list lacks %v", img)
		}
	}},
	{"pull again gives the same image", func(e *env) {
		first, err := e.pull(e.target.Images.Shell)
		e.ok("PullImage", err)
		again, err := e.pull(e.target.Images.Shell)
		e.ok("PullImage again", err)
		if first != again {
			e.Errorf("%q, then %q", first, again)
		}
	}},
	{"status verbose has info", func(e *env) {
		e.havePulled(e.target.Images.Shell)
		resp, err := e.images.ImageStatus(e.ctx, &runtimeapi.ImageStatusRequest{
			Image: &runtimeapi.ImageSpec{Image: e.target.Images.Shell}, Verbose: true,
		})
		e.ok("ImageStatus", err)
		if resp.GetInfo()["info"] == "" {
			e.Errorf("info %v", resp.GetInfo())
		}
	}},
	{"an image that is not there has no status and no error", func(e *env) {
		if img := e.image(e.target.Images.Missing); img != nil {
			e.Errorf("got %v", img)
		}
	}},
	{"pulling what the registry does not have is NotFound", func(e *env) {
		_, err := e.pull(e.target.Images.Missing)
		e.code("PullImage", err, codes.NotFound)
	}},
	{"pulling a bad reference is refused", func(e *env) {
		_, err := e.pull("Not A Reference!")
		e.refused("PullImage", err)
	}},
	{"pulling a private image takes the right login", func(e *env) {
		images := e.target.Images
		_, err := e.pull(images.Private)
		e.refused("PullImage without login", err)
		wrong := &runtimeapi.AuthConfig{Username: images.Login.GetUsername(), Password: "not " + images.Login.GetPassword()}
		_, err = e.images.PullImage(e.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: images.Private}, Auth: wrong})
		e.refused("PullImage with a wrong password", err)
		_, err = e.images.PullImage(e.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: images.Private}, Auth: images.Login})
		e.ok("PullImage", err)
		if e.image(images.Private) == nil {
			e.Error("ImageStatus finds nothing")
		}
	}},
	{"every name of an image leads to it", func(e *env) {
		e.havePulled(e.target.Images.Shell)
		img := e.image(e.target.Images.Shell)
		if len(img.GetRepoDigests()) == 0 {
			e.Fatalf("no digest: %v", img)
		}
		p := e.pod()
		for _, name := range append(append([]string{img.GetId()}, img.GetRepoTags()...), img.GetRepoDigests()...) {
			if got := e.image(name); got.GetId() != img.GetId() {
				e.Errorf("%s leads to %v", name, got)
			}
			config := p.commandConfig("true")
			config.Image = &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: e.target.Images.Shell}
			st := p.create(config).status()
			if st.GetImageRef() == "" || st.GetImage().GetImage() == "" {
				e.Errorf("container of %s: %v", name, st)
			}
		}
	}},
	// The one test that removes an image does so with all that follows from it,
	// since the tests run in parallel.
	{"remove", func(e *env) {
		ref := e.target.Images.Spare
		id, err := e.pull(ref)
		e.ok("PullImage", err)
		for range 2 { // idempotent
			e.ok("RemoveImage", e.removeImage(ref))
			if img := e.image(ref); img != nil {
				e.Fatalf("still there: %v", img)
			}
		}
		e.ok("RemoveImage of the missing", e.removeImage(e.target.Images.Missing))

		p := e.pod()
		config := e.commandConfig("true")
		config.Image = &runtimeapi.ImageSpec{Image: ref}
		_, err = p.tryCreate(config)
		e.code("CreateContainer without its image", err, codes.NotFound)

		again, err := e.pull(ref)
		e.ok("PullImage again", err)
		if again != id {
			e.Errorf("pulled %q, then %q", id, again)
		}
		c := p.create(config) // the failed one left no reservation behind
		e.ok("RemoveImage by ID, of an image in use", e.removeImage(id))
		if st := c.status(); st.GetImageRef() == "" || st.GetImage().GetImage() == "" {
			e.Errorf("container without its image: %v", st)
		}
		if img := e.image(ref); img != nil {
			e.Errorf("still there after removal by ID: %v", img)
		}
	}},
	{"concurrent pulls of one image agree", func(e *env) {
		var wg sync.WaitGroup
		ids := make([]string, 4)
		for i := range ids {
			wg.Go(func() {
				var err error
				if ids[i], err = e.pull(e.target.Images.Shell); err != nil {
					e.Errorf("PullImage: %v", err)
				}
			})
		}
		wg.Wait()
		if len(slices.Compact(ids)) != 1 {
			e.Errorf("got %q", ids)
		}
	}},
	{"image filesystem has a place and a size", func(e *env) {
		e.havePulled(e.target.Images.Shell)
		// The figures are collected from time to time.
		e.until("no usage of the image filesystem", func() bool {
			resp, err := e.images.ImageFsInfo(e.ctx, &runtimeapi.ImageFsInfoRequest{})
			e.ok("ImageFsInfo", err)
			for _, fs := range resp.GetImageFilesystems() {
				if fs.GetTimestamp() > 0 && filepath.IsAbs(fs.GetFsId().GetMountpoint()) && fs.GetUsedBytes().GetValue() > 0 && fs.GetInodesUsed() != nil {
					return true
				}
			}
			return false
		})
	}},
}

func (e *env) pull(ref string) (string, error) {
	resp, err := e.images.PullImage(e.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return resp.GetImageRef(), err
}

func (e *env) removeImage(ref string) error {
	_, err := e.images.RemoveImage(e.ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return err
}

// image is what the node has under a name, nil for nothing.
func (e *env) image(ref string) *runtimeapi.Image {
	e.Helper()
	resp, err := e.images.ImageStatus(e.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	e.ok("ImageStatus", err)
	return resp.GetImage()
}
