// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume"
	"github.com/sextant-node/sextant/test/standin"
	"github.com/sextant-node/sextant/test/volumetest"
)

// kills is how often the service is killed; make volume-kills does it 200 times.
var kills = flag.Int("kills", 20, "kill -9s of the service under pods with every kind of volume")

// The environment of a process that is the service under test.
const (
	runEnv, stateEnv, rootEnv = "SEXTANT_TEST_VOLUME_RUN", "SEXTANT_TEST_VOLUME_STATE", "SEXTANT_TEST_VOLUME_ROOTDIR"
)

// serve is such a process: it runs until it is killed.
func serve() error {
	kit, err := service.New(service.Options{
		Service: house.Volume, Log: slog.New(slog.DiscardHandler),
		Paths: house.Paths{Run: os.Getenv(runEnv), State: os.Getenv(stateEnv)},
	})
	if err != nil {
		return err
	}
	root := os.Getenv(rootEnv)
	if _, err := volume.New(volume.Config{RootDir: root, Child: volumetest.Command(root)}, volume.Deps{Kit: kit}); err != nil {
		return err
	}
	return kit.Run(context.Background())
}

// spawn starts the service as a process of its own, with faults (package fault).
func (r *rig) spawn(faults string) *standin.Process {
	r.Helper()
	return r.Spawn(runEnv+"="+r.Paths.Run, stateEnv+"="+r.Paths.State, rootEnv+"="+r.root, fault.Env+"="+faults)
}

// everyKind is a pod with a volume of every kind.
func everyKind(t testing.TB, uid string) *v1.Pod {
	return of(t, uid, `
- {name: scratch, emptyDir: {}}
- {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: host, hostPath: {path: /dev, type: Directory}}
- {name: config, configMap: {name: app}}
- {name: secret, secret: {secretName: key}}
- {name: about, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
- {name: image, image: {reference: example.org/x}}
- {name: disk, persistentVolumeClaim: {claimName: data}}
- name: api
  projected:
    sources:
    - serviceAccountToken: {path: token}
    - configMap: {name: app, items: [{key: a, path: ca}]}
`)
}

// insist calls until it is heard: whoever it calls may be killed at any moment.
func (r *rig) insist(what string, call func(context.Context) error) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		err := call(ctx)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-r.Context().Done():
			r.Errorf("never: %s: %v", what, err)
			return
		}
	}
}

// insistOn declares a pod, insistOff withdraws it.
func (r *rig) insistOn(p *v1.Pod) {
	data, err := used(p).Marshal()
	if err != nil {
		r.Error(err)
	}
	r.insist("declared "+string(p.UID), func(ctx context.Context) error {
		_, err := r.client.Declare(ctx, &volumev1.DeclareRequest{Pod: data})
		return err
	})
}

func (r *rig) insistOff(uid string) (at feed.Revision) {
	r.insist("withdrawn "+uid, func(ctx context.Context) error {
		resp, err := r.client.Withdraw(ctx, &volumev1.WithdrawRequest{Uid: uid})
		at = feed.RevisionFrom(resp.GetRevision())
		return err
	})
	return at
}

// seen waits until the feed is where a service that lives on has answered that it is. The
// feed of one that was killed shows what was true of that one until then.
func (r *rig) seen(at feed.Revision) {
	r.Helper()
	r.Eventually("the feed is at "+at.String(), func() bool { return r.pods.At(at) })
}

// mountsOf says which mount is at each mount point of some pods.
func (r *rig) mountsOf(uids ...string) map[string]int {
	r.Helper()
	table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(r.root, "pods")))
	if err != nil {
		r.Fatal(err)
	}
	all := map[string]int{}
	for _, m := range table {
		for _, uid := range uids {
			if strings.HasPrefix(m.Mountpoint, filepath.Join(r.root, "pods", uid)+"/") {
				all[m.Mountpoint] = m.ID
			}
		}
	}
	return all
}

// TestKills kills the service at random moments while pods come and go, with the
// API away from two thirds on. No volume of a pod that stays is unmounted or loses
// what is in it, and of pods that went nothing is left.
func TestKills(t *testing.T) {
	usual := standin.Limit
	standin.Limit += time.Duration(*kills) * 3 * time.Second
	t.Cleanup(func() { standin.Limit = usual })
	r, folder := newRig(t, nil), t.TempDir()
	r.stop()
	r.everything(folder)
	lives := []string{"lives-1", "lives-2"}
	process := r.spawn("")
	declare := func(uid string) { r.insistOn(everyKind(t, uid)) }
	withdraw := r.insistOff
	kept := map[string]string{filepath.Join(folder, "data"): "precious"}
	for _, uid := range lives {
		declare(uid)
		r.ready(uid)
		for _, v := range []string{"scratch", "memory"} {
			path := r.path(uid, "empty-dir", v, "kept")
			r.write(path, uid+v)
			kept[path] = uid + v
		}
		kept[r.path(uid, "configmap", "config", "a")] = "one"
		kept[r.path(uid, "secret", "secret", "pass")] = "word"
		kept[r.path(uid, "downward-api", "about", "name")] = uid + "-name"
		kept[r.path(uid, "projected", "api", "ca")] = "one"
		kept[r.path(uid, "local-volume", "disk-1", "data")] = "precious"
		r.insist("subpath", func(ctx context.Context) error {
			_, err := r.client.Subpath(ctx, &volumev1.SubpathRequest{Uid: uid, Volume: "scratch", Container: "c", SubPath: "part/of"})
			return err
		})
	}
	mounts := r.mountsOf(lives...)
	if len(mounts) != 6*len(lives) { // memory, secret, about, api, disk and the part
		t.Fatalf("mounts: %v", mounts)
	}
	whole := func(when string) {
		t.Helper()
		if now := r.mountsOf(lives...); !maps.Equal(now, mounts) {
			t.Fatalf("%s: mounts are %v, were %v", when, now, mounts)
		}
		for path, want := range kept {
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Fatalf("%s: %s holds %q, %v, want %q", when, path, got, err, want)
			}
		}
	}
	for i := range *kills {
		if i == *kills*2/3 {
			r.stopConfig()
		}
		var busy sync.WaitGroup
		busy.Go(func() { declare(fmt.Sprintf("comes-%d", i)) })
		if i > 1 {
			busy.Go(func() { withdraw(fmt.Sprintf("comes-%d", i-2)) })
		}
		for range rand.N(200) { // the random moment, and a look at what must not change meanwhile
			if now := r.mountsOf(lives...); !maps.Equal(now, mounts) {
				t.Fatalf("before kill %d: mounts are %v, were %v", i, now, mounts)
			}
		}
		process.Kill()
		whole(fmt.Sprintf("after kill %d", i))
		process = r.spawn("")
		busy.Wait()
		whole(fmt.Sprintf("before kill %d", i+1))
	}
	for i := max(0, *kills-2); i < *kills; i++ {
		r.seen(withdraw(fmt.Sprintf("comes-%d", i)))
	}
	r.Eventually("only the pods that stay", func() bool { return r.pods.Complete() && len(r.pods.Items()) == len(lives) })
	for _, uid := range lives {
		r.ready(uid)
	}
	whole("in the end")
	// podworker makes and removes the pods' own folders; nothing else may be left.
	entries, err := os.ReadDir(filepath.Join(r.root, "pods"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if left, err := os.ReadDir(filepath.Join(r.root, "pods", e.Name())); strings.HasPrefix(e.Name(), "comes-") && (err != nil || len(left) > 0) {
			t.Errorf("left of %s: %v, %v", e.Name(), left, err)
		}
	}
	if all := volumetest.Mounts(t, r.root); len(all) != len(mounts) {
		t.Errorf("mounts: %v", all)
	}
	for _, uid := range lives {
		withdraw(uid)
		r.gone(uid)
	}
	if all := volumetest.Mounts(t, r.root); len(all) > 0 {
		t.Errorf("mounts left: %v", all)
	}
	if got := r.read(filepath.Join(folder, "data")); got != "precious" {
		t.Errorf("the local volume holds %q", got)
	}
}

// everything is what the volumes of everyKind are made of.
func (r *rig) everything(folder string) {
	r.Helper()
	r.write(filepath.Join(folder, "data"), "precious")
	r.configMap("app", map[string]string{"a": "one"})
	r.secret("key", map[string]string{"pass": "word"})
	r.allocatable("8Gi")
	r.localDisk("data", "disk-1", folder)
}

// localDisk is a claim, and its volume, a folder of this node.
func (r *rig) localDisk(name, disk, folder string) {
	r.Helper()
	r.volumeOf(name, disk, v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: folder}}})
}
