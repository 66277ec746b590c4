// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// subject is a volume that the suite is run with: its source in a pod, or that of a
// persistent volume. %s is the pod's uid.
type subject struct {
	plugin          string
	own, persistent string
	// forgets: nothing on the node says that it was made.
	forgets bool
	// waits: making it waits for others.
	waits bool
}

// subjects: a new type gets a line here.
var subjects = []subject{
	{plugin: volumetype.EmptyDir, own: "emptyDir: {}"},
	{plugin: volumetype.EmptyDir, own: "emptyDir: {medium: Memory, sizeLimit: 1Mi}"},
	{plugin: volumetype.HostPath, own: "hostPath: {path: /dev, type: Directory}", forgets: true},
	{plugin: volumetype.HostPath, persistent: "hostPath: {path: /dev, type: Directory}", forgets: true},
	{plugin: volumetype.ConfigMap, own: "configMap: {name: c}"},
	{plugin: volumetype.Secret, own: "secret: {secretName: s}"},
	{plugin: volumetype.DownwardAPI, own: "downwardAPI: {items: [{path: file, fieldRef: {fieldPath: metadata.name}}]}"},
	{plugin: volumetype.Projected, own: "projected: {sources: [{configMap: {name: c}}]}"},
	{plugin: volumetype.Image, own: "image: {reference: i}", forgets: true},
	{plugin: volumetype.CSI, own: "csi: {driver: inline.example}"},
	{plugin: volumetype.CSI, persistent: "csi: {driver: csi.example, volumeHandle: vol-%s}"},
	{plugin: volumetype.Local, persistent: "local: {path: DATA}"},
	{plugin: volumetype.NFS, own: "nfs: {server: s, path: /e}", waits: true},
	{plugin: volumetype.NFS, persistent: "nfs: {server: s, path: /e}", waits: true},
	{plugin: volumetype.ISCSI, own: "iscsi: {targetPortal: 10.0.0.1, iqn: iqn-%s, lun: 0}", waits: true},
	{plugin: volumetype.FC, persistent: "fc: {wwids: [wwid-%s]}", waits: true},
}

// request asks for the subject's volume in a pod.
func (s subject) request(n *node, uid types.UID) *plugin.Request {
	n.Helper()
	r := &plugin.Request{
		Pod: &v1.Pod{}, Volume: &v1.Volume{Name: "v"}, Leaving: n.Context(),
		Objects: objects{step: n.steps.step}, Report: reports{n.steps.step},
	}
	r.Pod.UID, r.Pod.Name, r.Pod.Namespace = uid, string(uid)+"-name", "ns"
	parse := func(text string, into any) {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			n.Fatal(err)
		}
	}
	text := s.own + s.persistent
	if strings.Contains(text, "%s") {
		text = fmt.Sprintf(text, uid)
	}
	if s.own != "" {
		parse(text, &r.Volume.VolumeSource)
		return r
	}
	r.Volume.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}
	r.Source = &claim.Source{Claim: &v1.PersistentVolumeClaim{}, Volume: &v1.PersistentVolume{}}
	r.Source.Volume.Name = "pv-" + string(uid)
	parse(text, &r.Source.Volume.Spec.PersistentVolumeSource)
	if l := r.Source.Volume.Spec.Local; l != nil {
		l.Path = n.data
	}
	return r
}

// each runs a part of the suite for every subject, on a node of its own.
func each(t *testing.T, part func(n *node, s subject)) {
	for _, s := range subjects {
		t.Run(s.plugin[len("kubernetes.io/"):]+map[bool]string{true: "", false: " of a claim"}[s.own != ""], func(t *testing.T) { part(newNode(t), s) })
	}
}

func TestEveryTypeRunsTheSuite(t *testing.T) {
	for _, made := range volumetype.Made() {
		if !slices.ContainsFunc(subjects, func(s subject) bool { return s.plugin == made }) {
			t.Errorf("no subject is of %s", made)
		}
	}
}

// TestIdempotent: what is made is made once, through a new process as well, and containers
// keep what they wrote. Removed, nothing is left, however often.
func TestIdempotent(t *testing.T) {
	each(t, func(n *node, s subject) {
		r := s.request(n, "u")
		if m, ok := n.registry.Standing(r.Pod, r.Volume); ok {
			n.Errorf("stands at %s before it is made", m.Path)
		}
		first, mounts := n.made(r), n.mounts("u")
		written := filepath.Join(first.Path, "written")
		keeps := !s.forgets && volumetype.Of(r.Volume).Origin != volumetype.API
		if keeps {
			if err := os.WriteFile(written, nil, 0o600); err != nil {
				n.Fatal(err)
			}
		}
		for range 2 {
			if m, ok := n.registry.Standing(r.Pod, r.Volume); ok == s.forgets || ok && m.Path != first.Path {
				n.Errorf("stands: %v at %s, made at %s", ok, m.Path, first.Path)
			}
			if again := n.made(r); again.Path != first.Path {
				n.Errorf("made again at %s, first at %s", again.Path, first.Path)
			}
			n.start()
		}
		if now := n.mounts("u"); !maps.Equal(now, mounts) {
			n.Errorf("mounts are %v, were %v", now, mounts)
		}
		if _, err := os.Stat(written); keeps && err != nil {
			n.Error(err)
		}
		for range 2 {
			if err := n.remove("u"); err != nil {
				n.Error(err)
			}
		}
		if left := n.left("u"); len(left) > 0 {
			n.Errorf("left: %v", left)
		}
		if _, ok := n.registry.Standing(r.Pod, r.Volume); ok {
			n.Error("stands after it was removed")
		}
	})
}

// TestKilledBetweenSteps kills the process at each call to the disk, the tools, the driver
// and the API, before and after it. The next one makes the volume whole, or removes it
// without making it first; and a removal that was killed is done by the next one.
func TestKilledBetweenSteps(t *testing.T) {
	each(t, func(n *node, s subject) {
		r := s.request(n, "u")
		n.made(r)
		want := len(n.mounts("u"))
		gone := func() {
			n.Helper()
			if err := n.remove("u"); err != nil {
				n.Error(err)
			}
			if left := n.left("u"); len(left) > 0 {
				n.Errorf("left: %v", left)
			}
			if used := n.registry.InUse(); len(used) > 0 {
				n.Errorf("in use: %v", used)
			}
		}
		gone()
		make := func() error { _, err := n.make(r); return err }
		k := int64(1)
		for ; n.dies(k, make); k++ {
			n.start()
			n.made(r)
			if got := len(n.mounts("u")); got != want {
				n.Errorf("killed at step %d: %d mounts, want %d", k, got, want)
			}
			gone()
			n.start() // a driver is asked again what it can do
			if !n.dies(k, make) {
				n.Errorf("step %d is not repeated", k)
			}
			n.start()
			gone()
		}
		if steps := k - 1; steps == 0 && s.plugin != volumetype.Image {
			n.Error("no step was taken")
		}
		for k = 1; n.dies(k, func() error { return n.remove("u") }); k++ {
			n.start()
			gone()
			n.made(r)
		}
		if k == 1 {
			n.Error("no step of a removal was taken")
		}
	})
}

// TestHangs: while others do not answer, what stands is known without them, and a pod that
// is withdrawn does not wait for them.
func TestHangs(t *testing.T) {
	each(t, func(n *node, s subject) {
		if !s.waits {
			n.made(s.request(n, "u")) // whatever hangs, it is not asked
			return
		}
		r, stays := s.request(n, "u"), s.request(n, "stays")
		n.made(stays)
		n.hang.Store(true)
		var leave context.CancelFunc
		r.Leaving, leave = context.WithCancel(n.Context())
		failed := make(chan error, 1)
		go func() { _, err := n.make(r); failed <- err }()
		<-n.waits
		if _, ok := n.registry.Standing(stays.Pod, stays.Volume); !ok {
			n.Error("a volume beside it does not stand")
		}
		if _, ok := n.registry.Standing(r.Pod, r.Volume); ok {
			n.Error("stands before it is made")
		}
		n.made(stays)
		leave()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			n.Errorf("withdrawn: %v", err)
		}
		n.hang.Store(false)
		if err := n.remove("u"); err != nil {
			n.Error(err)
		}
		if left := n.left("u"); len(left) > 0 {
			n.Errorf("left: %v", left)
		}
	})
}

// TestRacingRemovals: pods that come and go at once take nothing from each other, nor from
// one that stays.
func TestRacingRemovals(t *testing.T) {
	each(t, func(n *node, s subject) {
		stays := s.request(n, "stays")
		n.made(stays)
		mounts := n.mounts("stays")
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				uid := types.UID(fmt.Sprint("comes-", i))
				for range 4 {
					_, err := n.make(s.request(n, uid))
					if err := errors.Join(err, n.remove(uid)); err != nil {
						n.Errorf("%s: %v", uid, err)
					}
				}
				if left := n.left(uid); len(left) > 0 {
					n.Errorf("left of %s: %v", uid, left)
				}
			})
		}
		all.Wait()
		if now := n.mounts("stays"); !maps.Equal(now, mounts) {
			n.Errorf("mounts are %v, were %v", now, mounts)
		}
		if _, ok := n.registry.Standing(stays.Pod, stays.Volume); ok == s.forgets {
			n.Error("the pod that stays lost its volume")
		}
	})
}
