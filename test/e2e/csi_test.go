// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/csidriver"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// csiVolumes has a driver register, and pods use a volume of it by a claim and
// one of their own, through kills of who makes and who holds them.
func csiVolumes(e *env) {
	root := e.TempDir()
	name := e.ns + ".csi.example"
	sockets, err := os.MkdirTemp("", "csi")
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { os.RemoveAll(sockets) })
	driver, err := csidriver.Start(csidriver.Config{
		Name: name, NodeID: "id-of-" + e.n.Name, Root: root, MaxVolumes: 9,
		Capabilities: []csi.NodeServiceCapability_RPC_Type{
			csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		},
		Endpoint: filepath.Join(sockets, "csi.sock"), Registration: filepath.Join(e.n.Root, "plugins_registry", e.ns+".sock"),
	})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(driver.Stop)
	e.csiObjects(name)
	harness.Eventually(e, usual, "the driver in CSINode", func(ctx context.Context) error {
		n, err := e.n.cp.Admin.StorageV1().CSINodes().Get(ctx, e.n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
			return d.Name == name && d.NodeID == "id-of-"+e.n.Name && d.Allocatable != nil && *d.Allocatable.Count == 9
		}) {
			return fmt.Errorf("drivers %v", n.Spec.Drivers)
		}
		return nil
	})
	e.awaitNode(usual, "the driver's name of the node", func(n *corev1.Node) error {
		return contains(fmt.Sprintf("%q:%q", name, "id-of-"+e.n.Name))(n.Annotations["csi.volume.kubernetes.io/nodeid"])
	})

	if err := os.MkdirAll(csidriver.Data(root, "vol-1"), 0o755); err != nil {
		e.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(csidriver.Data(root, "vol-1"), "greeting"), []byte("hello"), 0o644); err != nil {
		e.Fatal(err)
	}
	pod := e.pod("stores")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: name}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "scratch", MountPath: "/scratch"}}
	e.create(pod)
	pod = e.awaitRunning("stores", usual)
	e.file(pod, "/data/greeting", usual, is("hello"))
	e.file(pod, "/proc/mounts", usual, contains("tmpfs /scratch tmpfs"))

	if !testing.Short() { // nodes may not watch claims: it is a minute and a half until they look again
		e.expand("data", "stores", "2Gi")
	}
	before := csiCalls(e, root)
	e.n.Kill(e, "volume")
	e.n.Kill(e, "podworker")
	e.file(pod, "/data/greeting", usual, is("hello"))
	e.delete("stores", 1)
	e.awaitGone("stores", usual)
	// The pod does not wait for its volume to be unstaged.
	harness.Eventually(e, usual, "the volume is unstaged", func(context.Context) error {
		if !slices.Contains(csiCalls(e, root)[len(before):], "NodeUnstageVolume vol-1") {
			return errors.New("it is staged")
		}
		return nil
	})
	calls := csiCalls(e, root)[len(before):]
	unpublished := slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, "NodeUnpublishVolume vol-1") })
	unstaged := slices.Index(calls, "NodeUnstageVolume vol-1")
	if len(calls) != 3 || unpublished < 0 || unstaged < unpublished {
		e.Errorf("after the kills the driver was asked %v, and before %v", calls, before)
	}
	if left := harness.Mounts(string(pod.UID)); len(left) > 0 {
		e.Errorf("mounted after the pod went: %v", left)
	}
	if text, err := os.ReadFile(filepath.Join(csidriver.Data(root, "vol-1"), "greeting")); err != nil || string(text) != "hello" {
		e.Errorf("the volume has %q, %v", text, err)
	}
	driver.Stop()
	harness.Eventually(e, usual, "no driver in CSINode", func(ctx context.Context) error {
		n, err := e.n.cp.Admin.StorageV1().CSINodes().Get(ctx, e.n.Name, metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name }) {
			err = errors.New("it is there")
		}
		return err
	})
}

func csiCalls(e *env, root string) []string {
	e.Helper()
	calls, err := csidriver.Calls(root)
	if err != nil {
		e.Fatal(err)
	}
	return calls
}

// csiObjects makes the driver's object, which attaches nothing, a volume made by
// hand, and a claim that is bound to it by whoever binds claims.
func (e *env) csiObjects(driver string) {
	e.Helper()
	api := e.n.cp.Admin
	no := false
	_, err := api.StorageV1().CSIDrivers().Create(e.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &no, PodInfoOnMount: new(true), VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
			storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	name, class := "pv-"+e.ns, ""
	_, err = api.CoreV1().PersistentVolumes().Create(e.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Namespace: e.ns, Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-1", FSType: "ext4"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		err := errors.Join(
			api.CoreV1().PersistentVolumes().Delete(context.Background(), name, metav1.DeleteOptions{}),
			api.StorageV1().CSIDrivers().Delete(context.Background(), driver, metav1.DeleteOptions{}),
		)
		if err != nil && !apierrors.IsNotFound(err) {
			e.Logf("objects left: %v", err)
		}
	})
	_, err = api.CoreV1().PersistentVolumeClaims(e.ns).Create(e.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: name, StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
}
