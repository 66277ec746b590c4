// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onDiskWithin is what a change in the API may take until it is on disk.
const onDiskWithin = 2 * time.Second

// volumeFigures measures how long a changed object takes to the disk
// (docs/measurements.md).
func volumeFigures(e *env) {
	api := e.n.cp.Admin.CoreV1()
	config, err := api.ConfigMaps(e.ns).Create(e.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"greeting": "hello"}}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	secret, err := api.Secrets(e.ns).Create(e.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"password": []byte("swordfish")}}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.create(e.podWithVolumes())
	volumes := e.volumesOf(e.awaitRunning("web", usual))
	var took []time.Duration
	for i := range 25 {
		text := fmt.Sprintf("version %d", i)
		began := time.Now()
		config.Data["greeting"] = text
		if config, err = api.ConfigMaps(e.ns).Update(e.Context(), config, metav1.UpdateOptions{}); err != nil {
			e.Fatal(err)
		}
		secret.Data["password"] = []byte(text)
		if secret, err = api.Secrets(e.ns).Update(e.Context(), secret, metav1.UpdateOptions{}); err != nil {
			e.Fatal(err)
		}
		for _, file := range []string{"configmap/config/greeting", "projected/all/settings/greeting", "secret/secret/password"} {
			e.awaitText(filepath.Join(volumes, "kubernetes.io~"+file), text)
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	e.Logf("%s: on disk after a change in the API: p50 %d ms, p99 %d ms, most %d ms of %d", e.n.kind,
		took[len(took)/2].Milliseconds(), took[len(took)*99/100].Milliseconds(), took[len(took)-1].Milliseconds(), len(took))
	if p50 := took[len(took)/2]; p50 > onDiskWithin {
		e.Errorf("half of the changes took more than %s to the disk, allowed are %s", p50, onDiskWithin)
	}
}

func (e *env) volumesOf(pod *corev1.Pod) string {
	return filepath.Join(e.n.Root, "pods", string(pod.UID), "volumes")
}

// awaitText waits until a file reads as it should; links are swapped meanwhile.
func (e *env) awaitText(path, want string) {
	e.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(usual); ; <-tick.C {
		got, err := os.ReadFile(path)
		if err == nil && string(got) == want {
			return
		}
		if time.Now().After(limit) {
			e.Fatalf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}
