// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// pods are those of one namespace on a node, as a watch of the API server shows them.
type pods struct {
	t  *testing.T
	cp *harness.ControlPlane
	n  *harness.Node
	ns string

	made atomic.Int64

	mu   sync.Mutex
	last map[string]*corev1.Pod
	// flips counts how often a pod that was Ready was not, by name.
	flips map[string]int
}

func newPods(t *testing.T, cp *harness.ControlPlane, n *harness.Node) *pods {
	t.Helper()
	p := &pods{t: t, cp: cp, n: n, ns: cp.Namespace(t), last: map[string]*corev1.Pod{}, flips: map[string]int{}}
	factory := informers.NewSharedInformerFactoryWithOptions(cp.Admin, 0, informers.WithNamespace(p.ns))
	saw := func(obj any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		pod := obj.(*corev1.Pod)
		if was := p.last[pod.Name]; was != nil && ready(was) && !ready(pod) && pod.DeletionTimestamp == nil {
			p.flips[pod.Name]++
		}
		p.last[pod.Name] = pod
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: saw, UpdateFunc: func(_, obj any) { saw(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.last, obj.(*corev1.Pod).Name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return p
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// get returns the pod as it was seen last; nil when it is not there.
func (p *pods) get(name string) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[name]
}

// pod is one of this node that runs the hello image.
func (p *pods) pod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: name},
		Spec: corev1.PodSpec{
			NodeName: p.n.Name, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: images.Hello, Args: args}},
		},
	}
}

func (p *pods) create(pod *corev1.Pod) {
	p.t.Helper()
	if _, err := p.cp.Admin.CoreV1().Pods(p.ns).Create(p.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		p.t.Fatalf("pod %s: %v", pod.Name, err)
	}
}

func (p *pods) await(name string, limit time.Duration, what string, check func(*corev1.Pod) error) {
	p.t.Helper()
	harness.Eventually(p.t, limit, "pod "+name+" "+what, func(context.Context) error {
		pod := p.get(name)
		if pod == nil {
			return errors.New("it is not in the API")
		}
		if err := check(pod); err != nil {
			return fmt.Errorf("%w; phase %s, containers %+v", err, pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
}

func isReady(pod *corev1.Pod) error {
	if !ready(pod) {
		return errors.New("it is not Ready")
	}
	return nil
}

func asks(path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}}
}

// ready makes a pod that is probed each second and waits until it is Ready.
func (p *pods) ready(name string) string {
	p.t.Helper()
	p.probed(name)
	p.await(name, 2*time.Minute, "to be Ready", isReady)
	return name
}

func (p *pods) probed(name string) {
	p.t.Helper()
	pod := p.pod(name)
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: asks("/ready"), PeriodSeconds: 1, TimeoutSeconds: 10}
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: asks("/healthz"), PeriodSeconds: 5, TimeoutSeconds: 30}
	p.create(pod)
}

// fresh makes a pod, waits until it was probed and is Ready, and removes it, each
// within a time. It returns how long it took to be Ready, and then to be gone.
func (p *pods) fresh(prefix string, limit time.Duration) (up, gone time.Duration) {
	p.t.Helper()
	name := fmt.Sprintf("%s-%d", prefix, p.made.Add(1))
	began := time.Now()
	p.probed(name)
	p.await(name, limit, "to be Ready", isReady)
	up = time.Since(began)
	p.delete(name)
	p.gone(name, limit)
	return up, time.Since(began) - up
}

func (p *pods) delete(name string) {
	p.t.Helper()
	grace := int64(1)
	if err := p.cp.Admin.CoreV1().Pods(p.ns).Delete(p.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		p.t.Errorf("delete pod %s: %v", name, err)
	}
}

// gone waits until nothing is left of a pod: neither in the API nor on the disk.
func (p *pods) gone(name string, limit time.Duration) {
	p.t.Helper()
	uid := ""
	if pod := p.get(name); pod != nil {
		uid = string(pod.UID)
	}
	harness.Eventually(p.t, limit, "pod "+name+" to be gone", func(context.Context) error {
		if pod := p.get(name); pod != nil {
			return fmt.Errorf("it is there: deletion %v, phase %s, containers %+v", pod.DeletionTimestamp, pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		if uid == "" {
			return nil
		}
		if _, err := os.Lstat(filepath.Join(p.n.Root, "pods", uid)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("its folder is there: %w", err)
		}
		return nil
	})
}

// steady checks that a pod has been Ready all the time, with no restart.
func (p *pods) steady(name string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	pod := p.last[name]
	switch {
	case pod == nil:
		p.t.Errorf("pod %s is gone", name)
	case !ready(pod), p.flips[name] > 0, pod.Status.ContainerStatuses[0].RestartCount > 0:
		p.t.Errorf("pod %s: Ready %v, was not %d times, %d restarts", name, ready(pod), p.flips[name], pod.Status.ContainerStatuses[0].RestartCount)
	}
}
