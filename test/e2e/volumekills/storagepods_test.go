// SPDX-License-Identifier: Apache-2.0

package volumekills_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
	"github.com/sextant-node/sextant/test/images"
)

// own is the name of a pod's own volume, and of its claim (API rule).
func own(pod string) string { return pod + "-own" }

// start makes a pod with a volume of every kind; data is its claim.
func (s *storage) start(ctx context.Context, name, data string) error {
	if err := s.tryVolume(ctx, own(name), s.csiSource(own(name))); err != nil {
		return err
	}
	return s.Create(ctx, s.podWith(name, data))
}

// fill writes what the pod's volumes are to hold, and returns all that is in them,
// by path in the container.
func (s *storage) fill(pod *corev1.Pod, data string) map[string]string {
	s.T.Helper()
	text := "of " + pod.Name
	volumes := filepath.Join(s.Node.Root, "pods", string(pod.UID), "volumes")
	for _, dir := range []string{
		"kubernetes.io~empty-dir/scratch", "kubernetes.io~empty-dir/memory", "kubernetes.io~csi/inline/mount",
		"kubernetes.io~csi/" + s.NS + "-" + own(pod.Name) + "/mount",
	} {
		if err := os.WriteFile(filepath.Join(volumes, dir, "kept"), []byte(text), 0o644); err != nil {
			s.T.Fatal(err)
		}
	}
	holds := map[string]string{"/scratch/kept": text, "/memory/kept": text, "/inline/kept": text, "/own/kept": text}
	maps.Copy(holds, given(pod.Name, data))
	return holds
}

// given is what is in the volumes of every such pod from the start.
func given(pod, data string) map[string]string {
	return map[string]string{
		"/data/kept": data, "/shared/part/kept": "shared", "/part/kept": "shared", "/local/kept": "local", "/host/kept": "host",
		"/config/greeting": "hello", "/secret/password": "swordfish", "/about/name": pod,
		"/all/greeting": "hello", "/all/password": "swordfish", "/all/name": pod,
	}
}

// comeAndGo has pods come and go for as long as there are kills.
func (s *storage) comeAndGo(seed uint64) {
	s.T.Helper()
	for i := range lanes {
		s.dataVolume(laneClaim(i))
		s.Churners.Go(func() { s.lane(s.T.Context(), rand.New(rand.NewPCG(seed, uint64(i))), i) })
	}
}

func laneClaim(lane int) string { return fmt.Sprintf("lane-%d", lane) }

// lane has pods come and go, each after the one before it or while that ends, all
// with the same claim.
func (s *storage) lane(ctx context.Context, random *rand.Rand, lane int) {
	data := laneClaim(lane)
	ending := make(chan struct{})
	close(ending)
	for i := 0; s.killing.Load(); i++ {
		name := fmt.Sprintf("%s%d-%d", comes, lane, i)
		if err := s.start(ctx, name, data); err != nil {
			s.Found(ctx, judge.Stuck, err)
			break
		}
		if err := s.Await(ctx, name, load.IsReady); err != nil {
			s.Found(ctx, judge.Stuck, err)
		} else {
			s.Found(ctx, judge.Changed, s.reads(ctx, name, given(name, data)))
		}
		<-ending
		done := make(chan struct{})
		ending = done
		s.Churners.Go(func() {
			defer close(done)
			s.Found(ctx, judge.Lost, s.Remove(ctx, name))
			s.went.Add(1)
		})
		if random.IntN(2) == 0 {
			<-ending
		}
	}
}

// podWith is a pod with a volume of every kind; data is its claim. Kinds that need
// a server or a device of their own (NFS, iSCSI, FC) are not among them.
func (s *storage) podWith(name, data string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName:   s.Node.Name,
		Containers: []corev1.Container{{Name: "hello", Image: images.Hello}},
	}}
	c := &pod.Spec.Containers[0]
	add := func(name string, source corev1.VolumeSource) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	claimed := func(claim string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	}
	settings := corev1.LocalObjectReference{Name: "settings"}
	about := []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	add("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	add("memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: quantity("1Mi")}})
	add("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.host, Type: new(corev1.HostPathDirectory)}})
	add("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings}})
	add("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}})
	add("about", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: about}})
	add("all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: settings}},
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: about}},
	}}})
	add("image", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: images.Hello, PullPolicy: corev1.PullIfNotPresent}})
	add("data", claimed(data))
	add("shared", claimed("shared"))
	add("local", claimed("local"))
	add("own", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: s.claimSpec(own(name))},
	}})
	add("inline", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: s.driver}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "shared", MountPath: "/part", SubPath: "part"})
	if s.device != "" {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "raw", VolumeSource: claimed("raw")})
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/raw"}}
	}
	return pod
}

func quantity(s string) *resource.Quantity { return new(resource.MustParse(s)) }
