// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/resource"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/test/measure"
	"github.com/sextant-node/sextant/test/standin"
)

// measures stands for the runtime and volume: what they say of images, layers and
// volumes.
type measures struct {
	mu      sync.Mutex
	images  string
	layers  map[string]uint64 // by UID: of its container c
	volumes []*volumev1.VolumeStats
}

func (m *measures) Invoke(_ context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var answer proto.Message
	switch method {
	case runtimeapi.ImageService_ImageFsInfo_FullMethodName:
		answer = &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: m.images}}}}
	case runtimeapi.RuntimeService_ListContainerStats_FullMethodName:
		all := &runtimeapi.ListContainerStatsResponse{}
		for uid, n := range m.layers {
			all.Stats = append(all.Stats, &runtimeapi.ContainerStats{
				Attributes:    &runtimeapi.ContainerAttributes{Id: strings.Repeat("a", 64), Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Labels: map[string]string{pod.PodUIDLabel: uid}},
				WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: n}},
			})
		}
		answer = all
	case volumev1.VolumeService_Stats_FullMethodName:
		answer = &volumev1.StatsResponse{Volumes: m.volumes}
	default:
		return fmt.Errorf("resource calls %s", method)
	}
	proto.Merge(reply.(proto.Message), answer)
	return nil
}

func (m *measures) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("resource opens no streams")
}

// strained is a rig whose measurements are the test's, and whose clock it may put forward. Pods' cgroups are
// files, so that they use what a test writes.
type strained struct {
	*rig
	*measures
	ahead atomic.Int64
	edit  func(*resource.Deps)
}

func newStrained(t *testing.T) *strained {
	t.Helper()
	s := &strained{measures: &measures{images: t.TempDir(), layers: map[string]uint64{}}}
	s.edit = func(deps *resource.Deps) {
		deps.Gauge = gauge.Host{Root: deps.Machine.Root, Version: 1}
		deps.Images, deps.Volumes = s.measures, s.measures
		deps.Now = func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	}
	s.rig = newRig(t, s.edit)
	return s
}

// after lets time pass, and has the service look.
func (s *strained) after(d time.Duration) {
	s.Helper()
	s.ahead.Add(int64(d))
	s.look()
}

// uses sets what a pod's cgroup uses of memory.
func (s *strained) uses(uid string, bytes int64) {
	s.Helper()
	name := s.kubepods("burstable", "pod"+uid)
	s.file(filepath.Join("sys/fs/cgroup/memory", name.Path(pod.Cgroupfs), "memory.usage_in_bytes"), fmt.Sprint(bytes))
}

func (s *strained) verdict(uid string) *resourcev1.Eviction {
	item, _ := s.pods.Get(uid)
	return item.GetEviction()
}

func (s *strained) evicted(uid string) *resourcev1.Eviction {
	s.Helper()
	s.Eventually(uid+" is evicted", func() bool { return s.verdict(uid) != nil })
	return s.verdict(uid)
}

// seen is an event about an object.
func (s *strained) seen(reason, of string) *eventv1.Event {
	s.Helper()
	var found *eventv1.Event
	s.Eventually("event "+reason+" of "+of, func() bool {
		for _, e := range s.events.Items() {
			if e.GetReason() == reason && e.GetObject().GetName() == of {
				found = e
			}
		}
		return found != nil
	})
	return found
}

// TestEvictionForWantOfMemory: the pod that is most over its request goes, with the text,
// annotations and event of a kubelet; the next only when it is gone, and a restart of the
// service between changes nothing.
func TestEvictionForWantOfMemory(t *testing.T) {
	s := newStrained(t)
	s.settle()
	for uid, used := range map[string]int64{"small": 1 << 20, "middle": 2 << 20, "big": 3 << 20} {
		s.admit(burstable(uid, "100m"), false)
		s.uses(uid, used)
	}
	s.memory("1024")
	s.after(10 * time.Second)
	e := s.evicted("big")
	const text = "The node was low on resource: memory. Threshold quantity: 1Gi, available: 1Mi. "
	if e.GetMessage() != text || e.GetReason() != "Evicted" || e.GetSignal() != "memory.available" || e.GetGraceSeconds() != 1 {
		t.Errorf("verdict %v", e)
	}
	if e := s.seen("Evicted", "name-big"); e.GetType() != v1.EventTypeWarning || e.GetMessage() != text || e.GetAnnotations()["starved_resource"] != "memory" {
		t.Errorf("event %v", e)
	}
	if e := s.seen("EvictionThresholdMet", "n1"); e.GetMessage() != "Attempting to reclaim memory" {
		t.Errorf("event %v", e)
	}
	measure.Expect(t, s.kit.Metrics, map[string]float64{
		`kubelet_evictions{eviction_signal="memory.available"}`:                  1,
		`kubelet_eviction_stats_age_seconds{eviction_signal="memory.available"}`: 1,
	})
	s.stop()
	s.start(s.edit)
	s.Eventually("the second life", func() bool {
		n, ok := s.node.Get("node")
		return ok && n.GetMemory().GetUnderPressure() && s.node.Complete()
	})
	s.memory("512")
	s.after(35 * time.Second) // of the forty that one waits
	s.Eventually("a pass", func() bool {
		n, _ := s.node.Get("node")
		return strings.Contains(n.GetMemory().GetMessage(), "memory.available: 524288 of")
	})
	now := standin.Read(s.House, house.ResourcePods)
	s.Eventually("what that pass has decided", now.Complete)
	for uid, item := range now.Items() {
		if (item.GetEviction() != nil) != (uid == "big") {
			t.Errorf("while one is on its way: %v", item)
		}
	}
	s.release("big")
	s.evicted("middle")
	if s.verdict("small") != nil {
		t.Error("two for one")
	}
	s.after(40 * time.Second) // it does not go
	s.evicted("small")
}

// TestASoftEvictionHasItsGrace: while a pod is within the grace that a soft threshold gives
// it no other goes, whatever is restarted; the next goes half that time and thirty seconds
// later, or at once when the pod is gone.
func TestASoftEvictionHasItsGrace(t *testing.T) {
	s := newStrained(t)
	s.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.EvictionHard = map[string]string{"memory.available": "1Ki"}
		c.Kubelet.EvictionSoft = map[string]string{"memory.available": "1Gi"}
		c.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": "10s"}
		c.Kubelet.EvictionMaxPodGracePeriod = 120
	})
	s.answers()
	s.Eventually("the node's item", func() bool { _, ok := s.node.Get("node"); return ok })
	long := int64(300)
	for uid, used := range map[string]int64{"small": 1 << 20, "middle": 2 << 20, "big": 3 << 20} {
		p := burstable(uid, "100m")
		p.Spec.TerminationGracePeriodSeconds = &long
		s.admit(p, false)
		s.uses(uid, used)
	}
	passed := func(available string) {
		t.Helper()
		s.Eventually("a pass", func() bool {
			n, _ := s.node.Get("node")
			return strings.Contains(n.GetMemory().GetMessage(), "memory.available: "+available+" of")
		})
	}
	s.memory("1024")
	s.after(10 * time.Second)
	passed("1048576")
	s.after(10 * time.Second)
	if e := s.evicted("big"); e.GetGraceSeconds() != 120 {
		t.Errorf("verdict %v", e)
	}
	s.again()
	s.memory("512")
	s.after(205 * time.Second) // of 1.5 times 120, and 30
	passed("524288")
	now := standin.Read(s.House, house.ResourcePods)
	s.Eventually("what that pass has decided", now.Complete)
	for uid, item := range now.Items() {
		if (item.GetEviction() != nil) != (uid == "big") {
			t.Errorf("while one is on its way: %v", item)
		}
	}
	s.after(10 * time.Second)
	s.evicted("middle")
	s.release("middle")
	s.evicted("small")
}

// TestReclaimBeforeEviction: for want of disk podworker frees what no pod needs; a pod
// goes if that was not enough.
func TestReclaimBeforeEviction(t *testing.T) {
	s := newStrained(t)
	s.configure(func(c *kubeletconfig.Config) { c.Kubelet.EvictionHard = map[string]string{"nodefs.available": "1Mi"} })
	s.answers()
	s.Eventually("the node's item", func() bool { _, ok := s.node.Get("node"); return ok })
	s.admit(burstable("writer", "1"), false)
	s.admit(burstable("idle", "1"), false)
	s.mu.Lock()
	s.layers["writer"] = 5 << 20
	s.mu.Unlock()
	short := func(c *kubeletconfig.Config) {
		c.Kubelet.EvictionHard = map[string]string{"nodefs.available": "1000Pi"}
	}
	s.configure(short)
	s.after(10 * time.Second)
	var wanted *resourcev1.Reclaim
	s.Eventually("a request", func() bool { n, _ := s.node.Get("node"); wanted = n.GetReclaim(); return wanted != nil })
	if !wanted.GetContainers() || !wanted.GetImages() {
		t.Errorf("asked for %v", wanted)
	}
	s.after(30 * time.Second)
	standin.Set(s.House, s.worker, "node", &podworkerv1.NodeState{Reclaimed: wanted.GetTime()})
	e := s.evicted("writer")
	if !strings.HasPrefix(e.GetMessage(), "The node was low on resource: ephemeral-storage. Threshold quantity: 1000Pi, available: ") {
		t.Errorf("verdict %v", e)
	}
	s.Eventually("the request is over", func() bool { n, _ := s.node.Get("node"); return n.GetReclaim() == nil })
	s.release("writer")
	s.again()
	s.after(time.Second)
	if n, _ := s.node.Get("node"); n.GetReclaim() != nil {
		t.Error("after a restart more is asked for before what the pod had can be free")
	}
	// podworker is away: one goes on in the end.
	s.after(10 * time.Second)
	s.Eventually("another request", func() bool {
		n, _ := s.node.Get("node")
		return n.GetReclaim() != nil && !n.GetReclaim().GetTime().AsTime().Equal(wanted.GetTime().AsTime())
	})
	if s.verdict("idle") != nil {
		t.Error("evicted without an answer")
	}
	s.after(2 * time.Minute)
	s.evicted("idle")
}

// TestAReclaimThatWasEnough: no pod goes when podworker has freed what was missing on the
// disk of images, however soon after the node was looked at.
func TestAReclaimThatWasEnough(t *testing.T) {
	s := newStrained(t)
	available := func(dir string) int64 {
		disk, err := machine.DiskOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return disk.Available
	}
	full, freed := "/dev/shm", s.images
	if available(full) > available(freed) {
		full, freed = freed, full
	}
	threshold := func(bytes int64) {
		s.configure(func(c *kubeletconfig.Config) {
			c.Kubelet.EvictionHard = map[string]string{"imagefs.available": fmt.Sprint(bytes)}
		})
	}
	threshold(1)
	s.answers()
	s.Eventually("the node's item", func() bool { _, ok := s.node.Get("node"); return ok })
	s.admit(burstable("writer", "1"), false)
	images := func(dir string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.images, s.layers["writer"] = dir, 1<<50
	}
	images(full)
	s.ahead.Add(int64(10 * time.Second)) // readings of before are too old, and are repeated
	threshold((available(full) + available(freed)) / 2)
	var wanted *resourcev1.Reclaim
	s.Eventually("a request", func() bool { n, _ := s.node.Get("node"); wanted = n.GetReclaim(); return wanted != nil })
	images(freed)
	standin.Set(s.House, s.worker, "node", &podworkerv1.NodeState{Reclaimed: wanted.GetTime()})
	s.Eventually("the request is over", func() bool { n, _ := s.node.Get("node"); return n.GetReclaim() == nil })
	now := standin.Read(s.House, house.ResourcePods)
	s.Eventually("what that pass has decided", now.Complete)
	if item, ok := now.Get("writer"); !ok || item.GetEviction() != nil {
		t.Errorf("enough was freed: %v", item)
	}
}

// TestLimitsOfLocalStorage: pods over limits of their own go, all at once, whatever the
// node has.
func TestLimitsOfLocalStorage(t *testing.T) {
	s := newStrained(t)
	s.settle()
	limit := func(uid, quantity string) *v1.Pod {
		p := burstable(uid, "1")
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: apiresource.MustParse(quantity)}
		return p
	}
	scratch := burstable("scratch", "1")
	size := apiresource.MustParse("1Mi")
	scratch.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}}}
	logs := filepath.Join(t.TempDir(), "logs")
	s.configure(func(c *kubeletconfig.Config) { c.Kubelet.PodLogsDir = logs })
	for _, p := range []*v1.Pod{limit("layer", "5Mi"), limit("within", "5Mi"), limit("log", "5Mi"), scratch, burstable("free", "1")} {
		s.admit(p, false)
	}
	dir := filepath.Join(pod.PodLogDir(logs, "ns", "name-log", "log"), "c")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "0.log"), make([]byte, 6<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.layers = map[string]uint64{"layer": 5<<20 + 1, "within": 5 << 20, "free": 1 << 40}
	s.volumes = []*volumev1.VolumeStats{{Uid: "scratch", Name: "v", Used: 2 << 20, Ephemeral: true}}
	s.mu.Unlock()
	s.after(10 * time.Second)
	for uid, want := range map[string]string{
		"layer":   "ephemeralpodfs.limit Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
		"log":     "ephemeralpodfs.limit Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
		"scratch": `emptydirfs.limit Usage of EmptyDir volume "v" exceeds the limit "1Mi". `,
	} {
		if e := s.evicted(uid); e.GetSignal()+" "+e.GetMessage() != want {
			t.Errorf("%s: %v", uid, e)
		}
	}
	if s.verdict("within") != nil || s.verdict("free") != nil {
		t.Errorf("pods within their limits: %v", s.pods.Items())
	}
}

// slowRuntime answers each question about layers when the test says so.
type slowRuntime struct {
	*measures
	answer chan struct{}
}

func (r slowRuntime) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	if method == runtimeapi.RuntimeService_ListContainerStats_FullMethodName {
		select {
		case <-r.answer:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.measures.Invoke(ctx, method, request, reply, options...)
}

// TestASlowRuntimeHidesNothingElse: while the runtime measures layers, for longer than a pass
// may wait, limits of volumes hold and pods go for want of memory. What comes late serves
// the next pass.
func TestASlowRuntimeHidesNothingElse(t *testing.T) {
	s := newStrained(t)
	s.stop()
	slow, usual := slowRuntime{s.measures, make(chan struct{})}, s.edit
	s.start(func(deps *resource.Deps) {
		usual(deps)
		deps.Images, deps.Volumes = slow, slow
	})
	s.settle()
	size := apiresource.MustParse("1Mi")
	scratch, layer := burstable("scratch", "1"), burstable("layer", "1")
	scratch.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}}}
	layer.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: size}
	for _, p := range []*v1.Pod{scratch, layer, burstable("big", "1")} {
		s.admit(p, false)
	}
	s.mu.Lock()
	s.layers = map[string]uint64{"layer": 2 << 20}
	s.volumes = []*volumev1.VolumeStats{{Uid: "scratch", Name: "v", Used: 2 << 20, Ephemeral: true}}
	s.mu.Unlock()
	s.after(10 * time.Second)
	if e := s.evicted("scratch"); e.GetSignal() != "emptydirfs.limit" {
		t.Errorf("verdict %v", e)
	}
	select {
	case slow.answer <- struct{}{}: // to that pass's question
	case <-s.Context().Done():
		t.Fatal("the runtime is not asked any more")
	}
	s.after(40 * time.Second)
	if e := s.evicted("layer"); e.GetSignal() != "ephemeralpodfs.limit" {
		t.Errorf("verdict %v", e)
	}
	s.uses("big", 3<<20)
	s.memory("1024")
	s.after(40 * time.Second)
	if e := s.evicted("big"); e.GetSignal() != "memory.available" {
		t.Errorf("verdict %v", e)
	}
}

// TestAVerdictIsJournaledFirst: what podworker may see of a verdict is on the disk.
func TestAVerdictIsJournaledFirst(t *testing.T) {
	s := newStrained(t)
	s.settle()
	s.admit(burstable("u", "100m"), false)
	if err := fault.Set("resource.evict=pause"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fault.Set(""); err != nil {
			t.Error(err)
		}
	})
	s.memory("1024")
	s.after(10 * time.Second)
	s.Eventually("a verdict that is not written", func() bool { return fault.Caught("resource.evict") > 0 })
	now := standin.Read(s.House, house.ResourcePods)
	s.Eventually("what the feed has", now.Complete)
	if item, ok := now.Get("u"); !ok || item.GetEviction() != nil {
		t.Errorf("in the feed before it is written: %v", item)
	}
	if err := fault.Set(""); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.start(s.edit)
	s.evicted("u")
}

// TestAnEvictionsEventOutlivesAKill: the event of a verdict is there again, and the same,
// in the next life, if its first was over before the recorder looked.
func TestAnEvictionsEventOutlivesAKill(t *testing.T) {
	s := newSiege(t, 3)
	s.insist(&resourcev1.AdmitRequest{Pod: s.pod("a", "1", "64Mi", 1)})
	s.memory("1024")
	s.ahead(10 * time.Second)
	s.look()
	item := s.item("a", func(a *resourcev1.PodAllocation) bool { return a.GetEviction() != nil })
	for range 2 {
		s.process.Kill()
		s.live("")
		events := standin.Read(s.House, house.ResourceEvents)
		s.Eventually("the event", func() bool {
			for _, e := range events.Items() {
				if e.GetObject().GetUid() == "a" && e.GetReason() == "Evicted" {
					return e.GetKey() != "" && proto.Equal(e.GetTime(), item.GetEviction().GetTime()) && e.GetMessage() == item.GetEviction().GetMessage()
				}
			}
			return false
		})
	}
}

// TestKillInAnEviction kills the service around the write of a verdict: in the end one
// pod is evicted, not two, and its event is there. The same again for the next pod, once the
// first has had its forty seconds.
func TestKillInAnEviction(t *testing.T) {
	for _, point := range []string{"resource.evict=kill", "store.write=kill", "store.written=kill"} {
		t.Run(point, func(t *testing.T) {
			s := newSiege(t, 5)
			for _, uid := range []string{"a", "b", "c"} {
				s.insist(&resourcev1.AdmitRequest{Pod: s.pod(uid, "1", "64Mi", 1)})
			}
			for evicted := 1; evicted <= 2; evicted++ {
				s.process.Kill()
				s.memory("1024")
				s.ahead(30 * time.Second)
				if !s.killedIn(point, func() bool { return false }) {
					t.Fatal("not killed")
				}
				s.Eventually(fmt.Sprint(evicted, " verdicts"), func() bool { return len(s.sentenced()) == evicted })
				// A pass more, before the next may go.
				s.memory("512")
				s.ahead(35 * time.Second)
				s.look()
				s.Eventually("a pass", func() bool {
					n, _ := s.node.Get("node")
					return strings.Contains(n.GetMemory().GetMessage(), "memory.available: 524288 of")
				})
				gone := s.sentenced()
				if len(gone) != evicted {
					t.Errorf("evicted: %v", gone)
				}
				s.Eventually("the events", func() bool {
					told := map[string]bool{}
					for _, e := range s.events.Items() {
						told[e.GetObject().GetUid()] = told[e.GetObject().GetUid()] || e.GetReason() == "Evicted"
					}
					return !slices.ContainsFunc(gone, func(uid string) bool { return !told[uid] })
				})
			}
		})
	}
}

// sentenced are the pods with a verdict. It reads the feed from its beginning: what was read
// before may be of a life that was killed.
func (s *siege) sentenced() (uids []string) {
	s.Helper()
	now := standin.Read(s.House, house.ResourcePods)
	s.Eventually("what the checkpoint has", now.Complete)
	for uid, item := range now.Items() {
		if item.GetEviction() != nil {
			uids = append(uids, uid)
		}
	}
	return uids
}
