// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/stallfs"
)

const (
	minute = time.Minute
	mib    = int64(1) << 20
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func ids(list []Record) string {
	var out []string
	for _, r := range list {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

func records(list ...Record) map[string]Record {
	all := map[string]Record{}
	for _, r := range list {
		all[r.ID] = r
	}
	return all
}

func TestObserve(t *testing.T) {
	listed := []*runtimeapi.Image{
		{Id: "a", RepoTags: []string{"a:1"}, Size: 10}, {Id: "b", RepoDigests: []string{"b@sha256:1"}}, {Id: "c", Pinned: true}, {Id: "d"},
	}
	got := observe(records(Record{ID: "d", FirstSeen: at(-minute), LastUsed: at(-minute)}, Record{ID: "gone"}), listed, Used{"a:1": true, "b@sha256:1": true, "d": true}, at(0), at(minute))
	want := records(
		Record{ID: "a", Names: []string{"a:1"}, Size: 10, FirstSeen: at(0), LastUsed: at(minute), InUse: true},
		Record{ID: "b", Names: []string{"b@sha256:1"}, FirstSeen: at(0), LastUsed: at(minute), InUse: true},
		Record{ID: "c", Pinned: true, FirstSeen: at(0)},
		Record{ID: "d", FirstSeen: at(-minute), LastUsed: at(minute), InUse: true},
	)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func TestUsedAsPodsNameThem(t *testing.T) {
	used := Used{"nginx": true, "r.example/app:1": true, "not": false, "sha256:feed": true}.normal()
	for name, want := range map[string]bool{
		"docker.io/library/nginx:latest": true, "docker.io/library/nginx:1": false, "r.example/app:1": true, "docker.io/library/not:latest": false, "sha256:feed": true,
	} {
		if got := used.has("id", []string{name}); got != want {
			t.Errorf("%s in use: %v", name, got)
		}
	}
}

func TestOutdated(t *testing.T) {
	have := records(
		Record{ID: "used", LastUsed: at(0), InUse: true}, Record{ID: "pinned", Pinned: true},
		Record{ID: "old", LastUsed: at(-20 * minute)}, Record{ID: "recent", LastUsed: at(-5 * minute)}, Record{ID: "never"},
	)
	for _, tc := range []struct {
		name  string
		max   time.Duration
		began time.Time
		want  string
	}{
		{"no limit", 0, at(-time.Hour), ""},
		{"old ones", 10 * minute, at(-time.Hour), "never old"},
		{"too early to tell", 10 * minute, at(-10 * minute), ""},
	} {
		if got := ids(outdated(have, Policy{MaxAge: tc.max}, tc.began, at(0))); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestToFree(t *testing.T) {
	have := records(
		Record{ID: "used", Size: 100, InUse: true}, Record{ID: "pinned", Size: 100, Pinned: true},
		Record{ID: "b", Size: 10, LastUsed: at(-3 * minute)}, Record{ID: "a", Size: 10, LastUsed: at(-9 * minute)},
		Record{ID: "new", Size: 10, FirstSeen: at(-minute)},
	)
	if got := ids(toFree(have, Policy{MinAge: 2 * minute}, at(0))); got != "a b" {
		t.Errorf("%q, want a b", got)
	}
}

func TestExcess(t *testing.T) {
	p := Policy{High: 85, Low: 80}
	for _, tc := range []struct {
		disk    Disk
		bytes   int64
		percent int
	}{
		{Disk{1000, 500}, 0, 50},
		{Disk{1000, 151}, 49, 85}, // what is available is rounded down
		{Disk{1000, 160}, 0, 84},
		{Disk{1000, 100}, 100, 90},
		{Disk{1000, 2000}, 0, 0},
	} {
		if bytes, percent := p.excess(tc.disk); bytes != tc.bytes || percent != tc.percent {
			t.Errorf("%+v: %d, %d %%; want %d, %d %%", tc.disk, bytes, percent, tc.bytes, tc.percent)
		}
	}
}

// kept is a feed that keeps what it was given.
type kept struct {
	mu       sync.Mutex
	images   *podworkerv1.Images
	complete bool
	set      chan struct{}
}

func (k *kept) Set(_ context.Context, _ string, m *podworkerv1.Images) (feed.Revision, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.images = m
	return feed.Revision{}, nil
}

func (k *kept) SetComplete(context.Context, bool) {
	k.mu.Lock()
	k.complete = true
	k.mu.Unlock()
	select {
	case k.set <- struct{}{}:
	default:
	}
}

type house struct {
	*Keeper
	t     *testing.T
	rt    *fakecri.Runtime
	clock *clocktesting.FakeClock
	feed  *kept
	used  Used
	known bool
	// unread: there is a pod that could not be read.
	unread bool
	disk   Disk
	cfg    *kubeletconfig.Config
	told   []string
}

func newHouse(t *testing.T, images ...fakecri.Image) *house {
	t.Helper()
	h := &house{
		t: t, clock: clocktesting.NewFakeClock(epoch), feed: &kept{set: make(chan struct{}, 1)}, used: Used{}, known: true,
		disk: Disk{Capacity: 100 * mib, Available: 50 * mib}, cfg: &kubeletconfig.Config{},
	}
	kubeletconfig.SetDefaults(&h.cfg.Kubelet)
	*h.cfg.Kubelet.ImageGCLowThresholdPercent = 60
	h.rt = fakecri.Start(t, fakecri.Config{Images: images, SandboxImage: "sandbox:1"})
	h.Keeper = New(Deps{
		Runtime: runtimeapi.NewRuntimeServiceClient(h.rt.Conn(t)), Images: runtimeapi.NewImageServiceClient(h.rt.Conn(t)), Feed: h.feed, Config: func() *kubeletconfig.Config { return h.cfg },
		Used: func() (Used, bool) { return h.used, h.known }, Unread: func() bool { return h.unread }, Disk: func(string) (Disk, error) { return h.disk, nil },
		Tell:  func(_ context.Context, reason, message string) { h.told = append(h.told, reason+": "+message) },
		Clock: h.clock, Log: slog.New(slog.DiscardHandler),
	})
	return h
}

// names of the images the runtime has, by first tag.
func (h *house) names() string {
	h.t.Helper()
	resp, err := h.deps.Images.ListImages(h.t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	var out []string
	for _, image := range resp.GetImages() {
		tag := image.GetRepoTags()[0]
		out = append(out, tag[strings.LastIndex(tag, "/")+1:])
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestCollect(t *testing.T) {
	images := []fakecri.Image{
		{Ref: "docker.io/library/a:1", Size: uint64(20 * mib)}, {Ref: "docker.io/library/b:1", Size: uint64(20 * mib)},
		{Ref: "docker.io/library/c:1", Size: uint64(20 * mib)}, {Ref: "docker.io/library/pinned:1", Size: uint64(20 * mib), Pinned: true},
	}
	for _, tc := range []struct {
		name string
		edit func(h *house)
		left string
		err  string
	}{
		{"room enough", func(*house) {}, "a:1 b:1 c:1 pinned:1", ""},
		{"full", func(h *house) { h.disk.Available = 5 * mib }, "c:1 pinned:1", ""},
		{"full, one in use", func(h *house) { h.disk.Available = 5 * mib; h.used["docker.io/library/b:1"] = true }, "b:1 pinned:1", ""},
		{"all in use", func(h *house) {
			h.disk.Available = 5 * mib
			for _, image := range images {
				h.used[image.Ref] = true
			}
		}, "a:1 b:1 c:1 pinned:1", "Insufficient free disk space on the node's image filesystem (95% of 100.0 MiB used)"},
		{"not known what is in use", func(h *house) { h.disk.Available = 0; h.known = false }, "a:1 b:1 c:1 pinned:1", ""},
		{"switched off", func(h *house) { h.disk.Available = 0; *h.cfg.Kubelet.ImageGCHighThresholdPercent = 100 }, "a:1 b:1 c:1 pinned:1", ""},
		{"no configuration", func(h *house) { h.disk.Available = 0; h.cfg = nil }, "a:1 b:1 c:1 pinned:1", ""},
		{"no capacity", func(h *house) { h.disk = Disk{} }, "a:1 b:1 c:1 pinned:1", "invalid capacity 0"},
		{"outdated", func(h *house) { h.cfg.Kubelet.ImageMaximumGCAge.Duration = time.Hour; h.clock.Step(2 * time.Hour) }, "pinned:1", ""},
		{"outdated, threshold switched off", func(h *house) {
			*h.cfg.Kubelet.ImageGCHighThresholdPercent = 100
			h.cfg.Kubelet.ImageMaximumGCAge.Duration = time.Hour
			h.clock.Step(2 * time.Hour)
		}, "pinned:1", ""},
		{"outdated, all removals fail", func(h *house) {
			h.cfg.Kubelet.ImageMaximumGCAge.Duration = time.Hour
			h.clock.Step(2 * time.Hour)
			h.rt.Fail(fakecri.Match{Method: "RemoveImage"}, 3, status.Error(codes.Internal, "read-only"))
		}, "a:1 b:1 c:1 pinned:1", "wanted to free images older than 1h0m0s, encountered errors in image deletion: remove image "},
		{"full, the longest unused comes into use meanwhile", func(h *house) {
			h.disk.Available = 5 * mib
			h.deps.Used = func() (Used, bool) { // the runtime's status is read after the list
				return Used{"docker.io/library/a:1": h.rt.Count(fakecri.Match{Method: "Status"}) > 0}, true
			}
		}, "a:1 pinned:1", ""},
		{"full, the longest unused cannot be removed", func(h *house) {
			h.disk.Available = 5 * mib
			h.rt.Fail(fakecri.Match{Method: "RemoveImage"}, 1, status.Error(codes.Internal, "read-only"))
		}, "a:1 pinned:1", "wanted to free 36700160 bytes, but freed 41943040 bytes space with errors in image deletion: remove image "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHouse(t, images...)
			if err := h.List(t.Context()); err != nil { // found at start: no minimal age
				t.Fatal(err)
			}
			order(h)
			tc.edit(h)
			err := h.Collect(t.Context())
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			left := h.names()
			if left != tc.left {
				t.Errorf("left %s, want %s", left, tc.left)
			}
			if removed := 4 - strings.Count(left, ":1"); len(h.feed.images.GetImages()) != 4-removed {
				t.Errorf("published %v", h.feed.images)
			}
		})
	}
}

// order has a used longest ago and c last.
func order(h *house) {
	h.t.Helper()
	for _, image := range []string{"a", "b", "c"} {
		h.used = Used{"docker.io/library/" + image + ":1": true}
		h.clock.Step(time.Minute)
		if err := h.List(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	}
	h.used = Used{}
	h.clock.Step(time.Minute)
}

// TestTheSandboxImage is not removed: no pod could be started without it where it can be
// pulled from nowhere.
func TestTheSandboxImage(t *testing.T) {
	h := newHouse(t, fakecri.Image{Ref: "docker.io/library/sandbox:1", Size: uint64(mib)}, fakecri.Image{Ref: "docker.io/library/a:1", Size: uint64(mib)})
	if err := h.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.rt.Fail(fakecri.Match{Method: "Status"}, 1, status.Error(codes.Unavailable, "not yet"))
	if err := h.RemoveUnused(t.Context()); err == nil || h.names() != "a:1 sandbox:1" {
		t.Errorf("error %v, left %q: images were removed before it was known of which sandboxes are made", err, h.names())
	}
	if err := h.RemoveUnused(t.Context()); err != nil || h.names() != "sandbox:1" {
		t.Errorf("error %v, left %q", err, h.names())
	}
	for text, want := range map[string]string{
		"": "map[]", "{}": "map[]", `{"sandboxImage":1}`: "map[]", "not JSON": "map[]",
		`{"containerd":{},"sandboxImage":"registry.k8s.io/pause:3.6"}`: "map[registry.k8s.io/pause:3.6:true]",
	} {
		if got := fmt.Sprint(sandboxImage(map[string]string{"config": text})); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestPodsThatCouldNotBeRead: the runtime is asked which images their containers have, so that
// others are removed; while it does not say it, none is.
func TestPodsThatCouldNotBeRead(t *testing.T) {
	h := newHouse(t, fakecri.Image{Ref: "docker.io/library/a:1", Size: uint64(mib)}, fakecri.Image{Ref: "docker.io/library/b:1", Size: uint64(mib)})
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "hung", Namespace: "default", Uid: "u"}}
	made, err := h.deps.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.deps.Runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: made.GetPodSandboxId(), SandboxConfig: sandbox, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "docker.io/library/a:1"},
		},
	}); err != nil {
		t.Fatal(err)
	}
	h.unread = true
	if err := h.List(t.Context()); err != nil { // found at start: no minimal age
		t.Fatal(err)
	}
	h.rt.Fail(fakecri.Match{Method: "ListContainers"}, 1, status.Error(codes.Unavailable, "not yet"))
	if err := h.RemoveUnused(t.Context()); err != nil || h.names() != "a:1 b:1" {
		t.Errorf("error %v, left %q, while it was not known what is in use", err, h.names())
	}
	if err := h.RemoveUnused(t.Context()); err != nil || h.names() != "a:1" || len(h.used) > 0 {
		t.Errorf("error %v, left %q, in use %v", err, h.names(), h.used)
	}
}

func TestMinimalAge(t *testing.T) {
	h := newHouse(t)
	if err := h.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.rt.Preload(fakecri.Image{Ref: "docker.io/library/new:1", Size: uint64(mib)})
	if err := h.RemoveUnused(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.names(); got != "new:1" {
		t.Errorf("left %q: an image just pulled was removed", got)
	}
	h.clock.Step(3 * time.Minute)
	if err := h.RemoveUnused(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.names(); got != "" {
		t.Errorf("left %q", got)
	}
}

func TestRun(t *testing.T) {
	h := newHouse(t, fakecri.Image{Ref: "docker.io/library/small:1", Size: 1}, fakecri.Image{Ref: "docker.io/library/big:1", Size: 2})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	<-h.feed.set
	h.feed.mu.Lock()
	if got := h.feed.images.GetImages(); len(got) != 2 || !strings.Contains(got[0].GetNames()[len(got[0].GetNames())-1], "big:1") || !h.feed.complete {
		t.Errorf("published %v", got)
	}
	h.feed.mu.Unlock()
	h.rt.Preload(fakecri.Image{Ref: "docker.io/library/more:1"})
	h.Pulled()
	<-h.feed.set
	h.feed.mu.Lock()
	if got := h.feed.images.GetImages(); len(got) != 3 {
		t.Errorf("after a pull: %v", got)
	}
	h.feed.mu.Unlock()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFailuresAreToldTheSecondTime(t *testing.T) {
	h := newHouse(t)
	for range 2 {
		h.collected(t.Context(), errors.New("no statistics"))
	}
	if len(h.told) != 1 || h.told[0] != "ImageGCFailed: no statistics" {
		t.Errorf("told %v", h.told)
	}
}

func TestStatFS(t *testing.T) {
	d, err := StatFS(t.TempDir())
	if err != nil || d.Capacity <= 0 || d.Available > d.Capacity {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err := StatFS(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a path that is not there was measured")
	}
	// One that is best read in large pieces is not larger for that.
	d, err = StatFS(stallfs.Mount(t).Dir)
	if want := (Disk{Capacity: 1024 * 4096, Available: 512 * 4096}); err != nil || d != want {
		t.Errorf("%+v, %v, want %+v", d, err, want)
	}
}

func TestHuman(t *testing.T) {
	for bytes, want := range map[int64]string{12: "12 B", 1536: "1.5 KiB", 3 << 30: "3.0 GiB", 5 << 50: "5120.0 TiB"} {
		if got := human(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

// nameless is an image service that lists an image without an ID too.
type nameless struct {
	runtimeapi.ImageServiceClient
	image *runtimeapi.Image
}

func (n nameless) ListImages(ctx context.Context, in *runtimeapi.ListImagesRequest, opts ...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	resp, err := n.ImageServiceClient.ListImages(ctx, in, opts...)
	if err == nil {
		resp.Images = append(resp.Images, n.image)
	}
	return resp, err
}

// TestAnImageWithoutAnID is an event with each collection, and is not removed, where images
// are told apart by runtime handler.
func TestAnImageWithoutAnID(t *testing.T) {
	for name, tc := range map[string]struct {
		image *runtimeapi.Image
		gate  bool
		told  string
	}{
		"of a handler": {&runtimeapi.Image{Spec: &runtimeapi.ImageSpec{RuntimeHandler: "kata"}}, true, "InvalidImageID: ImageID is not valid, skipping, image: ,kata"},
		"of none":      {&runtimeapi.Image{}, true, "InvalidImageID: ImageID is not valid, skipping, image: "},
		"pinned":       {&runtimeapi.Image{Pinned: true}, true, ""},
		"in use":       {&runtimeapi.Image{RepoTags: []string{"docker.io/library/a:1"}}, true, ""},
		"with an ID":   {&runtimeapi.Image{Id: "sha256:1"}, true, ""},
		"gate off":     {&runtimeapi.Image{}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.deps.Images = nameless{h.deps.Images, tc.image}
			h.cfg.Kubelet.FeatureGates = map[string]bool{"RuntimeClassInImageCriApi": tc.gate}
			h.used["docker.io/library/a:1"] = true
			if err := h.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(h.told, "; "); got != tc.told {
				t.Errorf("told %q, want %q", got, tc.told)
			}
		})
	}
}
