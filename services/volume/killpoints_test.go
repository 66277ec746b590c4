// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/csidriver"
	"github.com/sextant-node/sextant/test/standin"
	"github.com/sextant-node/sextant/test/volumetest"
)

// siege is the service as a process that is killed again and again, between a server, a
// target and a driver that live on. One pod stays, another one comes and goes.
type siege struct {
	*storage
	tools   *tools
	folder  string // of the local volume, which both have
	process *standin.Process
	mounts  map[string]int // of the pod that stays
}

// stored is a pod with volumes that somebody else makes or keeps.
func stored(t testing.TB, uid string) *v1.Pod {
	p := of(t, uid, `
- {name: scratch, emptyDir: {}}
- {name: secret, secret: {secretName: key}}
- {name: local, persistentVolumeClaim: {claimName: local}}
- {name: nfs, nfs: {server: fs, path: /`+uid+`}}
- {name: disk, iscsi: {targetPortal: 10.0.0.1, iqn: "iqn.2001-04.example:`+uid+`", lun: 0}}
- {name: csi, persistentVolumeClaim: {claimName: `+uid+`}}
`)
	group := int64(2000)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	return p
}

func newSiege(t *testing.T, lives int) *siege {
	t.Helper()
	usual := standin.Limit
	standin.Limit += time.Duration(lives) * 10 * time.Second
	t.Cleanup(func() { standin.Limit = usual })
	s := &siege{storage: newStorage(t), folder: t.TempDir()}
	s.tools = serveTools(t, s.rig)
	s.csiDriver(nil)
	s.secret("key", map[string]string{"pass": "word"})
	s.allocatable("8Gi")
	s.localDisk("local", "pv-local", s.folder)
	for _, uid := range []string{"stays", "comes"} {
		if err := os.Mkdir(filepath.Join(s.tools.exports, uid), 0o755); err != nil {
			t.Fatal(err)
		}
		s.volumeOf(uid, "pv-"+uid, v1.PersistentVolumeSpec{
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example", VolumeHandle: "vol-" + uid, FSType: "ext4"}},
		})
	}
	s.stop()
	s.process = s.spawn("")
	for _, uid := range []string{"stays", "comes"} {
		s.insistOn(stored(t, uid))
		s.ready(uid)
		for path, text := range s.contents(uid) {
			s.write(path, text)
		}
	}
	s.seen(s.insistOff("comes"))
	s.leaves()
	if s.mounts = s.mountsOf("stays"); len(s.mounts) != 5 { // secret, local, nfs, disk and csi
		t.Fatalf("mounts: %v", s.mounts)
	}
	return s
}

// contents are the files of a pod's volumes.
func (s *siege) contents(uid string) map[string]string {
	return map[string]string{
		s.path(uid, "empty-dir", "scratch", "file"):      uid + " scratch",
		s.path(uid, "nfs", "nfs", "file"):                uid + " nfs",
		s.path(uid, "iscsi", "disk", "file"):             uid + " disk",
		s.path(uid, "csi", "pv-"+uid, "mount", "file"):   uid + " csi",
		s.path(uid, "local-volume", "pv-local", "local"): "local",
	}
}

func (s *siege) holds(files map[string]string) {
	s.Helper()
	for path, want := range files {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			s.Errorf("%s holds %q, %v, want %q", path, got, err, want)
		}
	}
}

// whole judges the pod that stays.
func (s *siege) whole() {
	s.Helper()
	if now := s.mountsOf("stays"); !maps.Equal(now, s.mounts) {
		s.Errorf("mounts of the pod beside it are %v, were %v", now, s.mounts)
	}
	all := s.contents("stays")
	all[s.path("stays", "secret", "secret", "pass")] = "word"
	s.holds(all)
}

// leaves waits until the other one has gone, and judges that nothing is left of it but
// what outlives a pod.
func (s *siege) leaves() {
	s.Helper()
	s.gone("comes")
	if left := s.mountsOf("comes"); len(left) > 0 {
		s.Errorf("mounts left: %v", left)
	}
	if left, err := os.ReadDir(filepath.Join(s.root, "pods/comes")); err != nil || len(left) > 0 {
		s.Errorf("left of the pod: %v, %v", left, err)
	}
	var item *volumev1.VolumeNode
	s.Eventually("nothing of it is in use", func() bool { item, _ = s.node.Get("node"); return s.node.Complete() && len(item.GetInUse()) == 2 })
	if left := mountedFrom(s, filepath.Join(s.root, "plugins", "iqn.2001-04.example:comes-0")); len(left) > 0 {
		s.Errorf("the disk is left at %v", left)
	}
	if had := driverHas(s, strings.Split(s.calls(), ", "), "vol-comes"); had != "" {
		s.Errorf("the driver has the volume %s", had)
	}
	if slices.ContainsFunc(item.GetInUse(), func(name string) bool { return strings.Contains(name, "comes") }) {
		s.Errorf("in use: %v", item.GetInUse())
	}
	s.holds(map[string]string{
		filepath.Join(s.tools.exports, "comes/file"):               "comes nfs",
		filepath.Join(csidriver.Data(s.data, "vol-comes"), "file"): "comes csi",
		filepath.Join(s.folder, "local"):                           "local",
	})
}

// driverHas follows a driver's calls about a volume: "staged", "published", or nothing. It
// is unpublished before it is unstaged, and staged before it is published.
func driverHas(t testing.TB, calls []string, volume string) (has string) {
	t.Helper()
	for _, call := range calls {
		switch call {
		case "NodeStageVolume " + volume:
			has = "staged"
		case "NodePublishVolume " + volume:
			if has == "" {
				t.Errorf("published before it was staged: %q", calls)
			}
			has = "published"
		case "NodeUnpublishVolume " + volume:
			if has == "published" {
				has = "staged"
			}
		case "NodeUnstageVolume " + volume:
			if has == "published" {
				t.Errorf("unstaged before it was unpublished: %q", calls)
			}
			has = ""
		}
	}
	return has
}

// TestKillAtEachPoint kills the service where it is about to act, and starts it again: the
// pod gets what it was to get, and leaves nothing behind; a pod beside it keeps its mounts
// and what is in them.
func TestKillAtEachPoint(t *testing.T) {
	points := []struct {
		faults string
		leaves bool // it is hit when the pod leaves, else when it comes
	}{
		{"volume.setup=kill", false},
		{"volume.setup=3*off->kill", false},
		{"volume.setup=8*off->kill", false},
		{"volume.nfs=kill", false},
		{"volume.disk=kill", false},
		{"volume.disk.stage=kill", false},
		{"volume.csi.stage=kill", false},
		{"volume.remove=kill", true},
		{"volume.csi.unpublish=kill", true},
		{"volume.csi.unstage=kill", true},
		{"volume.disk.unstage=kill", true},
	}
	s := newSiege(t, len(points))
	for _, point := range points {
		t.Run(point.faults, func(t *testing.T) {
			var call sync.WaitGroup
			comes := func() { s.insistOn(stored(t, "comes")) }
			leaves := func() { s.insistOff("comes") }
			killedIn := func(step func()) {
				s.process.Kill()
				s.process = s.spawn(point.faults)
				call.Go(step)
				s.process.Dies(standin.Never)
				s.whole()
				s.process = s.spawn("")
				call.Wait()
			}
			if point.leaves {
				comes()
			} else {
				killedIn(comes)
			}
			s.ready("comes")
			s.whole()
			for path, text := range s.contents("comes") {
				s.write(path, text)
			}
			if point.leaves {
				killedIn(leaves)
			} else {
				s.seen(s.insistOff("comes"))
			}
			s.leaves()
			s.whole()
		})
	}
	s.seen(s.insistOff("stays"))
	s.gone("stays")
	s.unstaged()
	if left := volumetest.Mounts(t, s.root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// TestKillAfterEachCall kills the service when somebody has done what it asked for, and
// before it has heard so. What the pod has by then it may not want any more: it leaves
// without being made sure of again.
func TestKillAfterEachCall(t *testing.T) {
	making := []string{"MountNFS", "StageDisk", "NodeStageVolume", "NodePublishVolume"}
	removing := []string{"NodeUnpublishVolume", "NodeUnstageVolume", "UnstageDisk"}
	s := newSiege(t, len(making)+len(removing))
	var mu sync.Mutex
	after, victim := "", (*standin.Process)(nil)
	done := func(method string) {
		mu.Lock()
		defer mu.Unlock()
		if method == after {
			after = ""
			victim.Strike()
		}
	}
	s.done, s.tools.done = done, done
	for _, method := range append(making, removing...) {
		t.Run(method, func(t *testing.T) {
			arm := func() {
				mu.Lock()
				defer mu.Unlock()
				after, victim = method, s.process
			}
			var call sync.WaitGroup
			if slices.Contains(making, method) {
				arm()
				call.Go(func() { s.insistOn(stored(t, "comes")) })
				s.process.Dies(standin.Never)
				s.whole()
				s.process = s.spawn("volume.setup=error(not again)")
				call.Wait()
				s.seen(s.insistOff("comes"))
			} else {
				s.insistOn(stored(t, "comes"))
				s.ready("comes")
				for path, text := range s.contents("comes") {
					s.write(path, text)
				}
				arm()
				call.Go(func() { s.insistOff("comes") })
				s.process.Dies(standin.Never)
				s.whole()
				s.process = s.spawn("")
				call.Wait()
			}
			s.leaves()
			s.process.Kill()
			s.process = s.spawn("")
			s.whole()
		})
	}
}

// TestKillAtEachWrite kills the service at each write of its journal, one after the other,
// while a pod comes and while it leaves. What was begun is known, so that a pod that is
// not wanted any more leaves nothing.
func TestKillAtEachWrite(t *testing.T) {
	s := newSiege(t, 30)
	at := func(n int) string {
		if n == 0 {
			return "store.write=kill"
		}
		return fmt.Sprintf("store.write=%d*off->kill", n)
	}
	writes := 0
	for n, more := 0, true; more; n++ {
		s.process.Kill()
		s.process = s.spawn(at(n))
		var call sync.WaitGroup
		call.Go(func() { s.insistOn(stored(t, "comes")) })
		more = s.process.Dies(func() bool { item, ok := s.pods.Get("comes"); return ok && item.GetReady() })
		s.whole()
		s.process.Kill()
		s.process = s.spawn("volume.setup=error(not again)")
		call.Wait()
		s.seen(s.insistOff("comes"))
		s.leaves()
		writes++
	}
	for n, more := 0, true; more; n++ {
		s.process.Kill()
		s.process = s.spawn("")
		s.insistOn(stored(t, "comes"))
		s.ready("comes")
		for path, text := range s.contents("comes") {
			s.write(path, text)
		}
		s.process.Kill()
		s.process = s.spawn(at(n))
		var call sync.WaitGroup
		call.Go(func() { s.insistOff("comes") })
		more = s.process.Dies(func() bool {
			_, ok := s.pods.Get("comes")
			item, _ := s.node.Get("node")
			return !ok && s.pods.Complete() && s.node.Complete() && len(item.GetInUse()) == 2 // also what it left has gone
		})
		s.whole()
		s.process.Kill()
		s.process = s.spawn("")
		call.Wait()
		s.leaves()
		writes++
	}
	if writes < 8 {
		t.Errorf("only %d kills: the journal has more writes", writes)
	}
	t.Logf("%d kills", writes-2)
}
