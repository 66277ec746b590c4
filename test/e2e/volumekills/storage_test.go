// SPDX-License-Identifier: Apache-2.0

package volumekills_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/csidriver"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
)

// storage is a load of pods with volumes, and what those are made of.
type storage struct {
	*load.Load
	driver string // name of the CSI driver
	data   string // its root
	host   string // a folder of the node for hostPath and local volumes
	device string // a block device, empty if there is none

	// What is to stay as it is: mounts by mount point, files in pods by pod and path,
	// files outside of them by path.
	mounts  map[string]mount
	holds   map[string]map[string]string
	outside map[string]string
	uids    map[string]bool // of the pods that stay
	stages  map[string]bool // mount points of volumes staged for them
	went    atomic.Int64

	killing    atomic.Bool           // until the last kill
	killedLast map[house.Service]int // process of each service
}

// comes begins the names of pods that come and go.
const comes = "comes-"

// startStorage makes the driver, and the objects that pods have in common.
func startStorage(t *testing.T, l *load.Load) *storage {
	t.Helper()
	s := &storage{
		Load: l, driver: l.NS + ".csi.example", data: t.TempDir(), host: t.TempDir(),
		holds: map[string]map[string]string{}, outside: map[string]string{}, uids: map[string]bool{}, stages: map[string]bool{},
		killedLast: map[house.Service]int{},
	}
	sockets, err := os.MkdirTemp("", "csi") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	driver, err := csidriver.Start(csidriver.Config{
		Name: s.driver, NodeID: "id-of-" + l.Node.Name, Root: s.data,
		Capabilities: []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
		Endpoint:     filepath.Join(sockets, "csi.sock"), Registration: filepath.Join(l.Node.Root, "plugins_registry", l.NS+".sock"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Stop)
	s.loop()
	no := false
	s.make(l.CP.Admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: s.driver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &no, PodInfoOnMount: new(true), VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
			storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral,
		}},
	}, metav1.CreateOptions{}))
	s.make(l.CP.Admin.CoreV1().ConfigMaps(l.NS).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"greeting": "hello"},
	}, metav1.CreateOptions{}))
	s.make(l.CP.Admin.CoreV1().Secrets(l.NS).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"password": []byte("swordfish")},
	}, metav1.CreateOptions{}))
	s.outsideFile(filepath.Join(s.host, "kept"), "host")
	s.outsideFile(filepath.Join(s.host, "local", "kept"), "local")
	s.outsideFile(filepath.Join(csidriver.Data(s.data, "shared"), "part", "kept"), "shared")
	s.volume("shared", s.csiSource("shared"))
	s.claim("shared", false)
	s.volume("local", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: filepath.Join(s.host, "local")}})
	s.claim("local", false)
	if s.device != "" {
		s.volume("raw", s.csiSource("raw"))
		s.claim("raw", true)
	}
	return s
}

// blocks is what the block device holds.
var blocks = strings.Repeat("32 bytes that should be kept so\n", 2<<10)

// loop makes a block device of a file, where the machine lets one.
func (s *storage) loop() {
	s.T.Helper()
	file := filepath.Join(s.data, "disk")
	if err := os.WriteFile(file, []byte(blocks), 0o600); err != nil {
		s.T.Fatal(err)
	}
	out, err := exec.CommandContext(s.T.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		s.T.Logf("no block volumes: losetup: %v: %s", err, out)
		return
	}
	s.device = strings.TrimSpace(string(out))
	s.T.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", s.device).CombinedOutput(); err != nil {
			s.T.Errorf("losetup --detach %s: %v: %s", s.device, err, out)
		}
	})
}

func (s *storage) make(_ any, err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

func (s *storage) outsideFile(path, text string) {
	s.T.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		s.T.Fatal(err)
	}
	s.outside[path] = text
}

func (s *storage) csiSource(handle string) corev1.PersistentVolumeSource {
	source := &corev1.CSIPersistentVolumeSource{Driver: s.driver, VolumeHandle: handle}
	if handle == "raw" {
		source.VolumeAttributes = map[string]string{"device": s.device}
	}
	return corev1.PersistentVolumeSource{CSI: source}
}

// volume makes a persistent volume for a claim of the same name.
func (s *storage) volume(name string, source corev1.PersistentVolumeSource) {
	s.T.Helper()
	s.make(nil, s.tryVolume(s.T.Context(), name, source))
}

func (s *storage) tryVolume(ctx context.Context, name string, source corev1.PersistentVolumeSource) error {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.NS + "-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: gigabyte, AccessModes: anyone, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Namespace: s.NS, Name: name}, PersistentVolumeSource: source,
		},
	}
	if source.CSI != nil && source.CSI.VolumeHandle == "raw" {
		pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	}
	if source.Local != nil {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{s.Node.Name}}},
		}}}}
	}
	return s.Request(func() error {
		_, err := s.CP.Admin.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
		return err
	})
}

var (
	gigabyte = corev1.ResourceList{corev1.ResourceStorage: *quantity("1Gi")}
	anyone   = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
)

// claim makes a claim for the volume of that name.
func (s *storage) claim(name string, block bool) {
	s.T.Helper()
	spec := s.claimSpec(name)
	if block {
		spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	}
	s.make(s.CP.Admin.CoreV1().PersistentVolumeClaims(s.NS).Create(s.T.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{}))
}

func (s *storage) claimSpec(volume string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: anyone, VolumeName: s.NS + "-" + volume, StorageClassName: new(""),
		Resources: corev1.VolumeResourceRequirements{Requests: gigabyte},
	}
}

// keepers makes the pods that stay, and notes how they are.
func (s *storage) keepers(count int) {
	s.T.Helper()
	var names []string
	for i := range count {
		name := fmt.Sprintf("stays-%d", i)
		s.dataVolume(name)
		s.make(nil, s.start(s.T.Context(), name, name))
		names = append(names, name)
	}
	for _, name := range names {
		if err := s.Await(s.T.Context(), name, load.IsReady); err != nil {
			s.T.Fatalf("before anything was done: %v", err)
		}
		pod := s.Told(name)
		s.uids[string(pod.UID)] = true
		s.holds[name] = s.fill(pod, name)
	}
	s.Keep(names)
	s.mounts = mountsBelow(filepath.Join(s.Node.Root, "pods"))
	for path, m := range mountsBelow(filepath.Join(s.Node.Root, "plugins")) {
		s.mounts[path], s.stages[path] = m, true
	}
	if len(s.stages) < count+1 {
		s.T.Fatalf("staged are %v", s.stages)
	}
	for _, f := range s.whole() {
		s.T.Fatalf("before anything was done: %s: %s", f.Kind, f.What)
	}
}

// dataVolume makes the claim and the volume that some pods have one after another.
func (s *storage) dataVolume(name string) {
	s.T.Helper()
	s.outsideFile(filepath.Join(csidriver.Data(s.data, name), "kept"), name)
	s.volume(name, s.csiSource(name))
	s.claim(name, false)
}
