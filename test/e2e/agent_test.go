// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// agent is a node that either agent runs, and a namespace of its own, for what both are to
// do alike.
type agent struct {
	*testing.T
	place *harness.Place
	cp    *harness.ControlPlane
	seen  *observer
	ns    string
}

func newAgent(t *testing.T, place *harness.Place, cp *harness.ControlPlane, seen *observer) *agent {
	t.Helper()
	return &agent{t, place, cp, seen, cp.Namespace(t)}
}

// pod is one of the node with the hello program.
func (a *agent) pod(name string) *corev1.Pod {
	no := false
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: a.place.Name, Containers: []corev1.Container{{Name: "hello", Image: images.Hello}}, EnableServiceLinks: &no,
	}}
}

func (a *agent) make(p *corev1.Pod) {
	a.Helper()
	if _, err := a.cp.Admin.CoreV1().Pods(a.ns).Create(a.Context(), p, metav1.CreateOptions{}); err != nil {
		a.Fatal(err)
	}
}

func (a *agent) ready(name string) (p *corev1.Pod) {
	a.Helper()
	harness.Eventually(a, usual, name+" to be Ready", func(context.Context) error {
		if p = a.seen.pod(a.ns, name); p == nil || !conditionTrue(p, corev1.PodReady) {
			return fmt.Errorf("it is %v", p)
		}
		return nil
	})
	return p
}

// ask is what the hello program of a pod answers.
func (a *agent) ask(p *corev1.Pod, path string) (body string) {
	a.Helper()
	harness.Eventually(a, usual, p.Name+path, func(ctx context.Context) (err error) {
		_, body, err = ask(ctx, "GET", p, path)
		return err
	})
	return body
}
