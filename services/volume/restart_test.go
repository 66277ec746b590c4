// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/stallfs"
	"github.com/sextant-node/sextant/test/volumetest"
)

// stuck is the real disk, but for what a test holds up or lets fail.
type stuck struct {
	*setup.Host
	hang    chan struct{} // hostPaths named "hang" wait for it
	removal func(types.UID) error
	binds   func(index int)
}

func (s stuck) Subpath(uid types.UID, volume, container string, index int, path, sub string) (string, error) {
	if s.binds != nil {
		s.binds(index)
	}
	return s.Host.Subpath(uid, volume, container, index, path, sub)
}

func (s stuck) HostPath(v *v1.Volume) (string, error) {
	if v.Name == "hang" {
		<-s.hang
	}
	return s.Host.HostPath(v)
}

func (s stuck) Remove(uid types.UID) error {
	if s.removal != nil {
		if err := s.removal(uid); err != nil {
			return err
		}
	}
	return s.Host.Remove(uid)
}

func TestARestartKeepsEverything(t *testing.T) {
	r := newRig(t, nil)
	r.secret("key", map[string]string{"a": "1"})
	r.allocatable("8Gi")
	p := of(t, "u", `
- {name: e, emptyDir: {}}
- {name: m, emptyDir: {medium: Memory}}
- {name: s, secret: {secretName: key}}
`)
	r.declare(p)
	r.ready("u")
	disk, memory := r.path("u", "empty-dir", "e"), r.path("u", "empty-dir", "m")
	r.write(filepath.Join(disk, "data"), "on disk")
	r.write(filepath.Join(memory, "data"), "in memory")
	if err := os.Chmod(disk, 0o700); err != nil { // a database does that
		t.Fatal(err)
	}
	data, err := os.Readlink(r.path("u", "secret", "s", "..data"))
	if err != nil {
		t.Fatal(err)
	}
	mounts := len(volumetest.Mounts(t, r.root))
	before, _, _, _ := r.pods.State()

	// The neighbours are away: what stands must not need them.
	r.stop()
	r.stopConfig()
	var unready atomic.Bool
	watching := feed.NewReplica(feed.ReplicaConfig{
		Feed: house.VolumePods.Name, Poll: time.Millisecond, Puller: feed.Remote{Client: feedv1.NewFeedServiceClient(r.Dial(house.Volume))},
	}, feed.Decoder(func(_ string, item *volumev1.PodVolumes) (*volumev1.PodVolumes, error) {
		if !item.GetReady() {
			unready.Store(true)
		}
		return item, nil
	}))
	r.Go("watching", watching.Run)
	r.start(nil)
	r.Eventually("the second life", func() bool {
		now, complete, _, _ := r.pods.State()
		return now.Epoch != before.Epoch && complete
	})
	r.Eventually("the look at the secret", func() bool { return strings.Contains(r.volume("u", "s").GetError(), "not known yet") })
	r.Eventually("watched", func() bool { _, ok := watching.Get("u"); return ok })
	if unready.Load() {
		t.Error("the pod was unready for a while")
	}
	if a, b := r.read(filepath.Join(disk, "data")), r.read(filepath.Join(memory, "data")); a != "on disk" || b != "in memory" {
		t.Errorf("contents %q, %q", a, b)
	}
	if info, err := os.Stat(disk); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("rights were set again: %v, %v", info.Mode(), err)
	}
	if now, err := os.Readlink(r.path("u", "secret", "s", "..data")); err != nil || now != data {
		t.Errorf("the secret was written again: %v", err)
	}
	if n := len(volumetest.Mounts(t, r.root)); n != mounts {
		t.Errorf("%d mounts, had %d", n, mounts)
	}
}

func TestARestartFinishesAWithdrawal(t *testing.T) {
	r := newRig(t, nil)
	host := stuck{Host: setup.NewHost(r.root), removal: func(types.UID) error { return errors.New("device is busy") }}
	r.stop()
	r.start(func(d *volume.Deps) { d.Host = host })
	r.declare(of(t, "u", `- {name: e, emptyDir: {}}`))
	r.ready("u")
	r.withdraw("u")
	r.Eventually("the failure is said", func() bool {
		item, _ := r.pods.Get("u")
		return item.GetWithdrawing() && !item.GetReady() && len(item.GetVolumes()) == 1 &&
			item.GetVolumes()[0].GetError() == "device is busy" && item.GetVolumes()[0].GetRetryAt() != nil
	})
	data, err := of(t, "u", `- {name: e, emptyDir: {}}`).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Declare(r.Context(), &volumev1.DeclareRequest{Pod: data}); !rpc.Is(err, rpc.Conflict) {
		t.Errorf("declared while withdrawing: %v", err)
	}
	r.stop()
	r.start(nil)
	r.gone("u")
	if _, err := os.Lstat(filepath.Join(r.root, "pods/u/volumes")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

func TestAFailedRemovalIsTriedAgain(t *testing.T) {
	r := newRig(t, nil)
	var once sync.Once
	host := stuck{Host: setup.NewHost(r.root), removal: func(types.UID) (err error) {
		once.Do(func() { err = errors.New("device is busy") })
		return err
	}}
	r.stop()
	r.start(func(d *volume.Deps) { d.Host = host })
	r.declare(of(t, "u", `- {name: e, emptyDir: {}}`))
	r.ready("u")
	r.withdraw("u")
	r.gone("u")
}

func TestALostJournalLosesNoVolume(t *testing.T) {
	r := newRig(t, nil)
	keep, drop := of(t, "keep", `- {name: e, emptyDir: {}}`), of(t, "drop", `- {name: e, emptyDir: {}}`)
	for _, p := range []*v1.Pod{keep, drop} {
		r.declare(p)
		r.ready(string(p.UID))
		dir := r.path(string(p.UID), "empty-dir", "e")
		r.write(filepath.Join(dir, "data"), "precious")
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
	state := filepath.Join(r.Paths.StateOf(house.Volume), "state.db")
	r.write(state, strings.Repeat("garbage", 4096))
	r.start(nil)
	for _, uid := range []string{"keep", "drop"} {
		r.Eventually("found on disk", func() bool { return r.volume(uid, "e").GetStep() == "found on disk" })
	}
	if aside, err := filepath.Glob(state + ".damaged-*"); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	r.declare(keep)
	r.ready("keep")
	r.withdraw("drop")
	r.gone("drop")
	dir := r.path("keep", "empty-dir", "e")
	if got := r.read(filepath.Join(dir, "data")); got != "precious" {
		t.Errorf("contents %q", got)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("rights were set again: %v, %v", info.Mode(), err)
	}
	if _, err := os.Lstat(filepath.Join(r.root, "pods/drop/volumes")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

func TestAHangingVolumeHoldsUpNobodyElse(t *testing.T) {
	r := newRig(t, nil)
	var free atomic.Bool
	host := stuck{Host: setup.NewHost(r.root), hang: make(chan struct{}), removal: func(uid types.UID) error {
		if uid == "slow" && !free.Load() {
			t.Error("volumes are removed while one of them is being set up")
		}
		return nil
	}}
	r.stop()
	r.start(func(d *volume.Deps) { d.Host = host })
	slow := of(t, "slow", `
- {name: e, emptyDir: {}}
- {name: hang, hostPath: {path: /dev}}
`)
	r.declare(slow)
	for _, uid := range []string{"a", "b", "c"} {
		r.declare(of(t, uid, `- {name: e, emptyDir: {}}`))
	}
	for _, uid := range []string{"a", "b", "c"} {
		r.ready(uid)
		r.withdraw(uid)
		r.gone(uid)
	}
	// The item says what it hangs on.
	// The volume before it is in the pod's other lane, which may end later.
	r.Eventually("what it is doing", func() bool { return r.volume("slow", "hang").GetStep() == "set up kubernetes.io/host-path" })
	r.Eventually("the volume before it", func() bool { return r.volume("slow", "e").GetState() == volumev1.VolumeState_VOLUME_STATE_MOUNTED })
	// A withdrawal is taken at once, and done when the disk lets it.
	r.withdraw("slow")
	r.Eventually("withdrawing", func() bool { item, listed := r.pods.Get("slow"); return !listed || item.GetWithdrawing() })
	r.roundTrip("other")
	free.Store(true)
	close(host.hang)
	r.gone("slow")
}

// TestAFileSystemThatStopsAnswering: a pod waits for it and says so; other pods,
// readings and a restart do not.
func TestAFileSystemThatStopsAnswering(t *testing.T) {
	r, dead := newRig(t, nil), stallfs.Mount(t)
	r.stop()
	r.limit = 2 * time.Second
	r.start(nil)
	dead.Stall()
	hanging := func(uid string) {
		r.declare(of(t, uid, "\n- {name: e, emptyDir: {}}\n- {name: hang, hostPath: {path: "+dead.Dir+"/folder, type: Directory}}\n"))
	}
	said := func(uid string) func() bool {
		return func() bool {
			v := r.volume(uid, "hang")
			return v.GetState() == volumev1.VolumeState_VOLUME_STATE_PENDING && v.GetStep() == "set up kubernetes.io/host-path" && v.GetSince() != nil &&
				v.GetRetryAt() != nil && strings.Contains(v.GetError(), "hostPath "+dead.Dir+"/folder: no answer since ")
		}
	}
	others := func(uids ...string) {
		t.Helper()
		for _, uid := range uids {
			r.declare(of(t, uid, "\n- {name: e, emptyDir: {}}\n- {name: h, hostPath: {path: /dev, type: Directory}}\n"))
		}
		for _, uid := range uids {
			r.ready(uid)
		}
		if resp, err := r.client.Stats(r.Context(), &volumev1.StatsRequest{}); err != nil || len(resp.GetVolumes()) < len(uids) {
			t.Errorf("stats: %v, %v", resp, err)
		}
		for _, uid := range uids {
			r.withdraw(uid)
			r.gone(uid)
		}
	}
	for _, uid := range []string{"hang-x", "hang-y", "hang-z"} {
		hanging(uid)
	}
	others("a", "b", "c")
	r.Eventually("hang-x waits", said("hang-x"))
	before, _, _, _ := r.pods.State()
	r.stop()
	r.start(nil)
	r.Eventually("the second life", func() bool {
		now, complete, _, _ := r.pods.State()
		return now.Epoch != before.Epoch && complete
	})
	others("d", "e")
	r.withdraw("hang-z") // nothing of it is on the dead file system
	r.Eventually("hang-y waits", said("hang-y"))
	r.gone("hang-z")
	r.Eventually("an event", func() bool {
		return slices.ContainsFunc(r.messages(), func(m string) bool {
			return strings.HasPrefix(m, "FailedMount ns/hang-x-name: ") && strings.Contains(m, "no answer since")
		})
	})
	dead.Go()
	for _, uid := range []string{"hang-x", "hang-y"} {
		r.ready(uid)
	}
}
