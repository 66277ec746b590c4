// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/signal"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// How often images are listed, and collected.
const (
	listEvery    = time.Minute
	listAgain    = 2 * time.Second // while the runtime does not answer
	collectEvery = 5 * time.Minute
)

// Key of the one item of the feed.
const Key = "images"

// Feed takes what is published; a feed.Owner is one.
type Feed interface {
	Set(ctx context.Context, key string, images *podworkerv1.Images) (feed.Revision, error)
	SetComplete(ctx context.Context, complete bool)
}

// Deps is what images are known and removed by.
type Deps struct {
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	Feed    Feed
	// Config is nil until the configuration is known.
	Config func() *kubeletconfig.Config
	// Used says which images are in use; ok is false while that is not known
	// for every desired pod and every pod that could be read.
	Used func() (used Used, ok bool)
	// Unread reports whether there are pods that could not be read: the runtime is asked
	// for the images of their containers. May be nil, where there are none.
	Unread func() bool
	// Disk measures the file system a path lies on; nil for StatFS.
	Disk func(path string) (Disk, error)
	// Tell emits a warning about the node; may be nil.
	Tell  func(ctx context.Context, reason, message string)
	Clock clock.WithTicker
	Log   *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Keeper knows the node's images.
type Keeper struct {
	deps    Deps
	removed *prometheus.CounterVec
	pulled  signal.Signal
	began   time.Time
	failed  int // collections in a row

	mu      sync.Mutex // held while the runtime is asked to list or remove
	records map[string]Record
}

// New makes a Keeper; Run makes it work.
func New(deps Deps) *Keeper {
	if deps.Disk == nil {
		deps.Disk = StatFS
	}
	if deps.Tell == nil {
		deps.Tell = func(context.Context, string, string) {}
	}
	if deps.Unread == nil {
		deps.Unread = func() bool { return false }
	}
	return &Keeper{
		deps: deps, pulled: signal.New(), began: deps.Clock.Now(),
		removed: metric.In(deps.Metrics).Counters("kubelet_image_garbage_collected_total", "Images removed, by reason.", "reason"),
	}
}

// Pulled says that an image was pulled: list soon.
func (k *Keeper) Pulled() {
	k.pulled.Send()
}

// Run lists and collects until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	list, collect := k.deps.Clock.NewTimer(listEvery), k.deps.Clock.NewTicker(collectEvery)
	defer list.Stop()
	defer collect.Stop()
	for {
		wait := listEvery
		if err := k.List(ctx); err != nil && ctx.Err() == nil {
			k.deps.Log.Warn("images not listed", "error", err.Error())
			wait = listAgain
		}
		list.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-k.pulled:
		case <-list.C():
		case <-collect.C():
			k.collected(ctx, k.Collect(ctx))
		}
	}
}

// collected reports a collection that failed. The first time may be for want of
// statistics.
func (k *Keeper) collected(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		k.failed = 0
		return
	}
	k.failed++
	k.deps.Log.ErrorContext(ctx, "image garbage collection failed", "error", err.Error(), "times", k.failed)
	if k.failed > 1 {
		k.deps.Tell(ctx, "ImageGCFailed", err.Error())
	}
}

// List reads the images and publishes them.
func (k *Keeper) List(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list(ctx)
}

func (k *Keeper) list(ctx context.Context) error {
	resp, err := k.deps.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	used, _ := k.used(ctx)
	now := k.deps.Clock.Now()
	first := now
	if k.records == nil {
		first = time.Time{}
	}
	k.records = observe(k.records, resp.GetImages(), used, first, now)
	if _, err := k.deps.Feed.Set(ctx, Key, message(resp.GetImages())); err != nil {
		return err
	}
	k.deps.Feed.SetComplete(ctx, true)
	return nil
}

// used says which images are in use. A runtime that does not answer for one pod lists its
// containers all the same: it must not keep the images of all others.
func (k *Keeper) used(ctx context.Context) (used Used, ok bool) {
	unread := k.deps.Unread()
	used, ok = k.deps.Used()
	if !ok || !unread {
		return used, ok
	}
	resp, err := k.deps.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		k.deps.Log.WarnContext(ctx, "containers not listed: it is not known which images are in use", "error", err.Error())
		return nil, false
	}
	used = maps.Clone(used)
	for _, c := range resp.GetContainers() {
		used[c.GetImageRef()], used[c.GetImageId()], used[c.GetImage().GetImage()] = true, true, true
	}
	delete(used, "")
	return used, true
}

// message lists images, largest first, as the node's status shows them.
func message(listed []*runtimeapi.Image) *podworkerv1.Images {
	m := &podworkerv1.Images{}
	for _, image := range listed {
		m.Images = append(m.Images, &podworkerv1.Image{Names: names(image), SizeBytes: int64(image.GetSize()), Pinned: image.GetPinned()})
	}
	slices.SortFunc(m.Images, func(a, b *podworkerv1.Image) int {
		if a.GetSizeBytes() != b.GetSizeBytes() {
			return int(max(-1, min(1, b.GetSizeBytes()-a.GetSizeBytes())))
		}
		return strings.Compare(strings.Join(a.GetNames(), " "), strings.Join(b.GetNames(), " "))
	})
	return m
}

func policyOf(cfg *kubeletconfig.Config) Policy {
	p := Policy{High: 85, Low: 80, MinAge: cfg.Kubelet.ImageMinimumGCAge.Duration, MaxAge: cfg.Kubelet.ImageMaximumGCAge.Duration}
	if v := cfg.Kubelet.ImageGCHighThresholdPercent; v != nil {
		p.High = int(*v)
	}
	if v := cfg.Kubelet.ImageGCLowThresholdPercent; v != nil {
		p.Low = int(*v)
	}
	return p
}

// Collect removes outdated images and, when the disk is fuller than the high
// threshold, more until the low one is reached. A high threshold of 100 switches
// it off, unless imageMaximumGCAge is set, as in the kubelet.
func (k *Keeper) Collect(ctx context.Context) error {
	cfg := k.deps.Config()
	if cfg == nil {
		return nil
	}
	p := policyOf(cfg)
	if p.High >= 100 && p.MaxAge == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if ok, err := k.ready(ctx, cfg); !ok {
		return err
	}
	if _, err := k.remove(ctx, outdated(k.records, p, k.began, k.deps.Clock.Now()), math.MaxInt64, "age"); err != nil {
		return fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w", p.MaxAge, err)
	}
	disk, err := k.disk(ctx)
	if err != nil {
		return err
	}
	if disk.Capacity == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		k.deps.Tell(ctx, "InvalidDiskCapacity", err.Error())
		return err
	}
	wanted, percent := p.excess(disk)
	if wanted <= 0 {
		return nil
	}
	freed, err := k.remove(ctx, toFree(k.records, p, k.deps.Clock.Now()), wanted, "space")
	if err != nil {
		return fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w", wanted, freed, err)
	}
	if freed < wanted {
		why := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", percent, human(disk.Capacity), freed)
		k.deps.Tell(ctx, "FreeDiskSpaceFailed", why)
		return errors.New(why)
	}
	return nil
}

// RemoveUnused removes every image that is not in use and older than the minimal
// age: the node is under disk pressure.
func (k *Keeper) RemoveUnused(ctx context.Context) error {
	cfg := k.deps.Config()
	if cfg == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if ok, err := k.ready(ctx, cfg); !ok {
		return err
	}
	_, err := k.remove(ctx, toFree(k.records, policyOf(cfg), k.deps.Clock.Now()), math.MaxInt64, "space")
	return err
}

// ready brings the records up to date; it is not when it is not known what is in
// use.
func (k *Keeper) ready(ctx context.Context, cfg *kubeletconfig.Config) (bool, error) {
	if _, ok := k.used(ctx); !ok {
		return false, nil
	}
	if err := k.list(ctx); err != nil {
		return false, fmt.Errorf("list images: %w", err)
	}
	if err := k.pinSandbox(ctx); err != nil {
		return false, err
	}
	if r, ok := k.records[""]; ok && cfg.Gate("RuntimeClassInImageCriApi") { // a runtime that gives no ID
		if delete(k.records, ""); !r.InUse && !r.Pinned {
			index := ""
			if r.Handler != "" {
				index = "," + r.Handler
			}
			k.deps.Tell(ctx, "InvalidImageID", "ImageID is not valid, skipping, image: "+index)
		}
	}
	return true, nil
}

// pinSandbox has the image that the runtime makes sandboxes of pinned: containerd
// before 1.7.3 names it in its status, and does not pin it.
func (k *Keeper) pinSandbox(ctx context.Context) error {
	resp, err := k.deps.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("runtime status: %w", err)
	}
	used := sandboxImage(resp.GetInfo()).normal()
	for id, r := range k.records {
		r.Pinned = r.Pinned || used.has(id, r.Names)
		k.records[id] = r
	}
	return nil
}

// remove removes images one by one until so many bytes are freed; each is looked at
// again, for a container may have come to use it meanwhile. One that is in use or cannot
// be removed counts for nothing: the next goes in its place.
func (k *Keeper) remove(ctx context.Context, list []Record, wanted int64, reason string) (freed int64, failed error) {
	for _, r := range list {
		if freed >= wanted {
			break
		}
		if used, ok := k.used(ctx); !ok || used.normal().has(r.ID, r.Names) {
			continue
		}
		k.deps.Log.InfoContext(ctx, "removing image", "id", r.ID, "names", r.Names, "size", r.Size, "reason", reason)
		if _, err := k.deps.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: r.ID}}); err != nil {
			failed = errors.Join(failed, fmt.Errorf("remove image %s: %w", r.ID, err))
			continue
		}
		k.removed.WithLabelValues(reason).Inc()
		freed += r.Size
	}
	if len(list) > 0 {
		failed = errors.Join(failed, k.list(ctx))
	}
	return freed, failed
}

// disk is the file system the runtime keeps images on.
func (k *Keeper) disk(ctx context.Context) (Disk, error) {
	resp, err := k.deps.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return Disk{}, fmt.Errorf("image filesystem: %w", err)
	}
	for _, fs := range resp.GetImageFilesystems() {
		return k.deps.Disk(fs.GetFsId().GetMountpoint())
	}
	return Disk{}, errors.New("image filesystem: the runtime names none")
}
