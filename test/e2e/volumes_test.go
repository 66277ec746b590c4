// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// volumes mounts one volume of each kind and reads it from inside the container;
// then what they show changes.
func volumes(e *env) {
	api := e.n.cp.Admin.CoreV1()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"greeting": "hello", "other": "x"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"password": []byte("swordfish")}}
	var err error
	if config, err = api.ConfigMaps(e.ns).Create(e.Context(), config, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	if _, err = api.Secrets(e.ns).Create(e.Context(), secret, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.create(e.podWithVolumes())
	pod := e.awaitRunning("web", usual)
	e.file(pod, "/config/greeting", usual, is("hello"))
	e.file(pod, "/secret/password", usual, is("swordfish"))
	e.file(pod, "/info/name", usual, is("web"))
	e.file(pod, "/info/labels", usual, is(`color="blue"`))
	e.file(pod, "/info/cpu", usual, is("2"))
	e.file(pod, "/all/settings/greeting", usual, is("hello"))
	e.file(pod, "/all/uid", usual, is(string(pod.UID)))
	e.file(pod, "/proc/mounts", usual, contains(" /scratch "))
	e.file(pod, "/proc/mounts", usual, contains("tmpfs /memory tmpfs "))
	if e.n.flavour == harness.V2 {
		e.file(pod, "/image/hello", usual, contains("\x7fELF"))
	}
	e.file(pod, "/host/hostname-of-the-test", usual, is(e.n.Name))
	if env := e.environment(pod); env["GREETING"] != "hello" || env["PASSWORD"] != "swordfish" || env["POD_IP"] != pod.Status.PodIP {
		e.Errorf("environment %v", env)
	}
	e.file(pod, "/all/token", usual, func(token string) error { return e.checkToken(token, "sextant-test", pod) })
	const standard = "/var/run/secrets/kubernetes.io/serviceaccount/"
	e.file(pod, standard+"token", usual, func(token string) error { return e.checkToken(token, "", pod) })
	e.file(pod, standard+"namespace", usual, is(e.ns))
	e.file(pod, standard+"ca.crt", usual, contains("BEGIN CERTIFICATE"))

	config.Data = map[string]string{"greeting": "good day"}
	if _, err := api.ConfigMaps(e.ns).Update(e.Context(), config, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.n.cp.Kubectl(e, "label", "pod", "web", "color=red", "--overwrite", "--namespace="+e.ns)
	// The kubelet takes up to its syncFrequency plus the time of its caches.
	e.file(pod, "/config/greeting", 90*time.Second, is("good day"))
	e.file(pod, "/all/settings/greeting", 90*time.Second, is("good day"))
	e.file(pod, "/info/labels", 90*time.Second, is(`color="red"`))
	harness.Eventually(e, usual, "the dropped key to go", func(ctx context.Context) error {
		code, body, err := ask(ctx, "GET", pod, "/file?path=/config/other")
		if err == nil && code != 404 {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	if got := e.n.seen.pod(e.ns, "web").Status.ContainerStatuses[0].RestartCount; got != 0 {
		e.Errorf("restart count %d", got)
	}
	e.delete("web", 5)
	e.awaitGone("web", usual)
	if left := harness.Mounts(string(pod.UID)); len(left) > 0 {
		e.Errorf("mounted after the pod went: %v", left)
	}
}

func (e *env) podWithVolumes() *corev1.Pod {
	pod := e.pod("web")
	pod.Labels = map[string]string{"color": "blue"}
	host := e.TempDir()
	writeFile(e, host+"/hostname-of-the-test", e.n.Name)
	field := func(path string) *corev1.ObjectFieldSelector { return &corev1.ObjectFieldSelector{FieldPath: path} }
	settings := corev1.LocalObjectReference{Name: "settings"}
	seconds := int64(600)
	c := &pod.Spec.Containers[0]
	add := func(name string, source corev1.VolumeSource) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	if e.n.flavour == harness.V2 { // containerd has them since 2.1
		add("image", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: images.Hello, PullPolicy: corev1.PullIfNotPresent}})
	}
	add("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	add("memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
	add("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}})
	add("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings}})
	add("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}})
	add("info", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "name", FieldRef: field("metadata.name")}, {Path: "labels", FieldRef: field("metadata.labels")},
		{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "hello", Resource: "limits.cpu"}},
	}}})
	add("all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "sextant-test", ExpirationSeconds: &seconds, Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: settings, Items: []corev1.KeyToPath{{Key: "greeting", Path: "settings/greeting"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "uid", FieldRef: field("metadata.uid")}}}},
	}}})
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *quantity("2")}
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *quantity("10m")}
	c.Env = []corev1.EnvVar{
		{Name: "GREETING", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: settings, Key: "greeting"}}},
		{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "password"}}},
		{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: field("status.podIP")}},
	}
	return pod
}

func (e *env) environment(pod *corev1.Pod) (env map[string]string) {
	e.Helper()
	harness.Eventually(e, usual, "the environment of "+pod.Name, func(ctx context.Context) error {
		_, body, err := ask(ctx, "GET", pod, "/env")
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(body), &env)
	})
	return env
}

// checkToken lets the API server judge a service account's token and looks at
// whom it is bound to.
func (e *env) checkToken(token, audience string, pod *corev1.Pod) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%q is no token", token)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	if bound := fmt.Sprintf(`"pod":{"name":%q,"uid":%q}`, pod.Name, pod.UID); !strings.Contains(string(payload), bound) {
		return fmt.Errorf("claims %s are not of the pod", payload)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if audience != "" {
		review.Spec.Audiences = []string{audience}
	}
	review, err = e.n.cp.Admin.AuthenticationV1().TokenReviews().Create(e.Context(), review, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if want := "system:serviceaccount:" + e.ns + ":default"; !review.Status.Authenticated || review.Status.User.Username != want {
		return fmt.Errorf("the API server says of the token: %+v", review.Status)
	}
	return nil
}
