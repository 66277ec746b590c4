// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/stallfs"
	"github.com/sextant-node/sextant/test/standin"
	"github.com/sextant-node/sextant/test/volumetest"
)

// tools is what runs root's tools, with folders for exports.
type tools struct {
	supervisorv1.UnimplementedToolsServiceServer
	t       *testing.T
	root    string
	exports string

	mu     sync.Mutex
	asked  []*supervisorv1.MountNFSRequest
	frozen []*stallfs.FS // exports of the server "freezes"
	disks  []string      // what was asked for disks
	stuck  error         // why disks are not let go of; nil for what happens
	done   func(string)  // called when something was done, before it is answered; nil for nothing
	staged []*supervisorv1.StageDiskRequest
}

// serveTools starts it for a rig.
func serveTools(t *testing.T, r *rig) *tools {
	t.Helper()
	k := &tools{t: t, root: r.root, exports: t.TempDir()}
	ids, err := house.ReadIdentities(filepath.Join(t.TempDir(), "none"), uint32(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Socket: r.Paths.Tools(), Identities: ids, Log: r.Logger})
	if err != nil {
		t.Fatal(err)
	}
	supervisorv1.RegisterToolsServiceServer(server, k)
	r.Go("tools", server.Run)
	return k
}

func (k *tools) MountNFS(ctx context.Context, r *supervisorv1.MountNFSRequest) (*supervisorv1.MountNFSResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k.asked = append(k.asked, r)
	dir := pod.Layout{Root: k.root}.Volume(types.UID(r.GetPodUid()), "kubernetes.io/nfs", r.GetVolume())
	switch r.GetServer() {
	case "gone":
		k.mu.Unlock()
		<-ctx.Done()
		k.mu.Lock()
		return nil, rpc.Unavailable.Errorf("mount: no answer within 2m0s")
	case "denies":
		return nil, rpc.Conflict.Errorf("mount failed: exit status 32")
	case "freezes":
		k.frozen = append(k.frozen, stallfs.MountAt(k.t, dir))
		return &supervisorv1.MountNFSResponse{}, nil
	}
	flags := uintptr(unix.MS_BIND)
	err := unix.Mount(filepath.Join(k.exports, r.GetPath()), dir, "", flags, "")
	if err == nil && slices.Contains(r.GetOptions(), "ro") {
		err = unix.Mount("", dir, "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	k.did("MountNFS")
	return &supervisorv1.MountNFSResponse{}, err
}

func (k *tools) did(method string) {
	if k.done != nil {
		k.done(method)
	}
}

func (k *tools) calls() []*supervisorv1.MountNFSRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.asked)
}

// TestNFS: an export in a pod and by a claim, kept through a restart without
// neighbours, and let go of.
func TestNFS(t *testing.T) {
	r := newRig(t, nil)
	k := serveTools(t, r)
	r.write(filepath.Join(k.exports, "data"), "theirs")
	r.volumeOf("shared", "pv-nfs", v1.PersistentVolumeSpec{
		MountOptions:           []string{"nfsvers=4.1", "hard"},
		PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "fs", Path: "/", ReadOnly: true}},
	})
	r.declare(of(t, "u", `
- {name: own, nfs: {server: fs, path: /, readOnly: true}}
- {name: claimed, persistentVolumeClaim: {claimName: shared}}`))
	r.ready("u")
	own, claimed := r.path("u", "nfs", "own"), r.path("u", "nfs", "pv-nfs")
	if r.volume("u", "own").GetHostPath() != own || r.volume("u", "claimed").GetHostPath() != claimed {
		t.Errorf("mounted at %s and %s", r.volume("u", "own").GetHostPath(), r.volume("u", "claimed").GetHostPath())
	}
	if err := os.WriteFile(filepath.Join(own, "mine"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only one: %v", err)
	}
	// Who may write to a claim's is said by the claim's user.
	r.write(filepath.Join(claimed, "mine"), "ours")
	var options []string
	for _, call := range k.calls() {
		options = append(options, call.GetVolume()+":"+strings.Join(call.GetOptions(), ","))
	}
	slices.Sort(options) // they are mounted at the same time
	if want := []string{"own:ro", "pv-nfs:nfsvers=4.1,hard"}; !slices.Equal(options, want) {
		t.Errorf("asked for %q, want %q", options, want)
	}

	r.stop()
	r.stopConfig()
	r.start(nil)
	r.ready("u")
	if n := len(k.calls()); n != 2 {
		t.Errorf("mounted %d times in all, want 2", n)
	}
	r.withdraw("u")
	r.gone("u")
	if left := volumetest.Mounts(t, r.root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if got := r.read(filepath.Join(k.exports, "mine")); got != "ours" {
		t.Errorf("on the server: %q", got)
	}
	if _, err := os.Lstat(r.path("u", "nfs", "own")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// TestNFSFails: a pod says what its server says; nobody to run the tool is said too.
func TestNFSFails(t *testing.T) {
	r := newRig(t, nil)
	r.declare(of(t, "u", `- {name: d, nfs: {server: denies, path: /p}}`))
	r.Eventually("nobody runs the tool", func() bool {
		return strings.Contains(r.volume("u", "d").GetError(), "sextant-tools.service) is not there")
	})
	serveTools(t, r)
	want := `FailedMount ns/u-name: MountVolume.SetUp failed for volume "d" : mount failed: exit status 32`
	r.Eventually("the event", func() bool { return slices.Contains(r.messages(), want) })
	r.Eventually("the next try is told", func() bool { return r.volume("u", "d").GetRetryAt().IsValid() })
}

// TestNFSServerGone: one server that never answers and one that stops answering
// cost their own pods, and nobody a start, a deletion or a restart.
func TestNFSServerGone(t *testing.T) {
	r := newRig(t, nil)
	k := serveTools(t, r)
	r.declare(of(t, "frozen", `- {name: d, nfs: {server: freezes, path: /p}}`))
	r.ready("frozen")
	k.frozen[0].Stall()
	r.declare(of(t, "waits", `- {name: d, nfs: {server: gone, path: /p}}`))
	r.Eventually("it waits", func() bool { return len(k.calls()) == 2 })
	r.Eventually("the pod says on what", func() bool {
		v := r.volume("waits", "d")
		return v.GetState() == volumev1.VolumeState_VOLUME_STATE_PENDING && v.GetStep() == "set up kubernetes.io/nfs" && v.GetSince().IsValid()
	})
	r.declare(of(t, "other", `- {name: e, emptyDir: {}}`))
	r.ready("other")

	r.withdraw("waits")
	r.gone("waits")

	began := time.Now()
	r.stop()
	r.start(nil)
	r.ready("other")
	r.ready("frozen") // containers go on with it
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the restart took %s", took)
	}
	r.withdraw("other")
	r.gone("other")
	r.withdraw("frozen")
	r.gone("frozen")
	if left := volumetest.Mounts(t, r.path("frozen", "nfs", "d")); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// volumeOf is a claim and the volume it is bound to.
func (r *rig) volumeOf(claim, name string, spec v1.PersistentVolumeSpec) {
	r.Helper()
	c := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	c.Namespace, c.Name, c.UID = "ns", claim, types.UID("claim-of-"+name)
	spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: claim, UID: c.UID}
	pv := &v1.PersistentVolume{Spec: spec}
	pv.Name = name
	for key, object := range map[string]interface{ Marshal() ([]byte, error) }{"PersistentVolumeClaim/ns/" + claim: c, "PersistentVolume//" + name: pv} {
		data, err := object.Marshal()
		if err != nil {
			r.Fatal(err)
		}
		standin.Set(r.House, r.objects, key, &configv1.Object{Object: data})
	}
}
