// SPDX-License-Identifier: Apache-2.0

package killmatrix_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
	"github.com/sextant-node/sextant/test/images"
)

// size is how many pods of each kind are on the node.
type size struct {
	ready    int // Ready all the time
	unready  int // run and are never Ready
	starting int // run, and their startup probe never succeeds
	churn    int // starting at any time, and as many ending
}

// load is a node with pods on it and a witness of what happens to them.
type load struct {
	t        *testing.T
	cp       *harness.ControlPlane
	n        *harness.Node
	ns       string
	w        *witness
	audience *audience
	heard    []string // pods whose probes the audience hears
	hogs     *hogs    // nil for none

	number   int
	running  sync.RWMutex // held for reading while a request may be under way
	stopping context.CancelFunc
	churners sync.WaitGroup
}

// startLoad fills a node and returns once all that is to be steady is.
func startLoad(t *testing.T, cp *harness.ControlPlane, n *harness.Node, s size, seed uint64, hogs *hogs) *load {
	t.Helper()
	l := &load{t: t, cp: cp, n: n, ns: cp.Namespace(t), audience: newAudience(t), hogs: hogs}
	if _, err := cp.Admin.CoreV1().ConfigMaps(l.ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"greeting": "hello"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.w = newWitness(t, cp, n, l.ns, hogs != nil)
	steady := map[string]func(*corev1.Pod) bool{}
	for i := range s.ready + s.unready + s.starting {
		var pod *corev1.Pod
		is := runs
		switch {
		case i < s.ready:
			pod, is = l.ready(fmt.Sprintf("ready-%d", i), i), isReady
		case i < s.ready+s.unready:
			pod = l.unready(fmt.Sprintf("unready-%d", i), i)
		default:
			pod = l.starting(fmt.Sprintf("starting-%d", i))
		}
		if err := l.create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		steady[pod.Name] = is
	}
	var names []string
	for name, is := range steady {
		if err := l.w.await(t.Context(), name, is); err != nil {
			t.Fatalf("before anything was done: %v", err)
		}
		names = append(names, name)
	}
	l.w.settle(names)
	ctx, cancel := context.WithCancel(t.Context())
	l.stopping = cancel
	for i := range s.churn {
		l.churners.Go(func() { l.churn(ctx, rand.New(rand.NewPCG(seed, uint64(i))), i) })
	}
	if hogs != nil {
		l.churners.Go(func() { hogs.run(ctx, l) })
	}
	return l
}

// pod runs the hello image; every one has its service account's token.
func (l *load) pod(name string) (*corev1.Pod, *corev1.Container) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName:   l.n.Name,
		Containers: []corev1.Container{{Name: "hello", Image: images.Hello}},
	}}
	l.hogs.request(&pod.Spec.Containers[0])
	return pod, &pod.Spec.Containers[0]
}

// mount gives a pod a ConfigMap and a memory-backed emptyDir.
func mount(pod *corev1.Pod) {
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}, {Name: "scratch", MountPath: "/scratch"}}
}

// probe is of a page, or of a port where the page is empty. The application is
// given time, for the machine may be busy; the audience is not.
func probe(page string, failures int32) *corev1.Probe {
	p := &corev1.Probe{PeriodSeconds: 3, FailureThreshold: failures, TimeoutSeconds: 20}
	if page == "" {
		p.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}
	} else {
		p.HTTPGet = &corev1.HTTPGetAction{Path: page, Port: intstr.FromInt32(8080)}
	}
	return p
}

// ready is a pod of one of a few kinds, every second one with volumes.
func (l *load) ready(name string, i int) *corev1.Pod {
	pod, c := l.pod(name)
	if i%2 == 1 {
		mount(pod)
	}
	switch i % 10 {
	case 0, 1, 2, 3, 4:
		c.ReadinessProbe = l.audience.probe("/" + name)
		l.heard = append(l.heard, name)
	case 5:
		c.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "test", "/config/greeting"}}},
			PeriodSeconds: 5, FailureThreshold: 1, TimeoutSeconds: 20,
		}
	case 6:
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = probe("/healthz", 100), probe("/ready", 1), probe("/healthz", 1)
	case 7:
		c.ReadinessProbe, c.LivenessProbe = probe("", 3), probe("", 1)
		c.LivenessProbe.InitialDelaySeconds = 10
	case 8:
		c.ReadinessProbe = probe("/ready", 1)
		pod.Spec.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"other"}}}
	}
	return pod
}

// unready is a pod that runs and whose readiness fails, every time.
func (l *load) unready(name string, i int) *corev1.Pod {
	pod, c := l.pod(name)
	if c.ReadinessProbe = probe("/no-such-page", 1); i%2 == 1 {
		c.ReadinessProbe = l.audience.probe("/no/" + name)
		l.heard = append(l.heard, name)
		mount(pod)
	}
	return pod
}

// starting is a pod whose startup takes for ever.
func (l *load) starting(name string) *corev1.Pod {
	pod, c := l.pod(name)
	c.StartupProbe = l.audience.probe("/no/" + name)
	c.StartupProbe.FailureThreshold = 1 << 20
	c.ReadinessProbe, c.LivenessProbe = probe("/ready", 1), probe("/healthz", 1)
	l.heard = append(l.heard, name)
	return pod
}

// fresh is a pod that needs every service that starts pods: objects and a token,
// a sandbox and volumes, an allocation, a verdict, a status.
func (l *load) fresh() *corev1.Pod {
	l.number++
	pod, c := l.pod(fmt.Sprintf("fresh-%d", l.number))
	mount(pod)
	c.ReadinessProbe = l.audience.probe("/" + pod.Name)
	return pod
}

// churn starts and ends pods until ctx ends: while one ends, the next starts.
func (l *load) churn(ctx context.Context, random *rand.Rand, lane int) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for i := 0; ctx.Err() == nil; i++ {
		pod, c := l.pod(fmt.Sprintf("churn-%d-%d", lane, i))
		c.Args = []string{"--start-delay=" + dwell.String(), "--term-delay=" + dwell.String()}
		c.StartupProbe, c.ReadinessProbe = probe("/healthz", 100), probe("/ready", 3)
		c.StartupProbe.PeriodSeconds = 1
		if random.IntN(2) == 0 {
			mount(pod)
		}
		if err := l.create(ctx, pod); err != nil {
			l.find(ctx, judge.Stuck, err)
			continue
		}
		// Every third one is deleted while it starts.
		is := isReady
		if random.IntN(3) == 0 {
			is = func(p *corev1.Pod) bool { return isReady(p) || runs(p) }
		}
		l.find(ctx, judge.Stuck, l.w.await(ctx, pod.Name, is))
		ending.Wait()
		ending.Go(func() { l.find(ctx, judge.Lost, l.remove(ctx, pod.Name)) })
	}
}

// find notes an error, unless it is the end.
func (l *load) find(ctx context.Context, kind judge.Kind, err error) {
	if ctx.Err() == nil {
		l.w.find(kind, err)
	}
}

func (l *load) create(ctx context.Context, pod *corev1.Pod) error {
	l.running.RLock()
	defer l.running.RUnlock()
	_, err := l.cp.Admin.CoreV1().Pods(l.ns).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// remove deletes a pod and waits until it is gone.
func (l *load) remove(ctx context.Context, name string) error {
	l.running.RLock()
	grace := int64(30)
	err := l.cp.Admin.CoreV1().Pods(l.ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	l.running.RUnlock()
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return l.w.awaitGone(ctx, name)
}

// logs reads a pod's log through the API server, which asks nodeapi.
func (l *load) logs(ctx context.Context, pod string) error {
	_, err := l.cp.Admin.CoreV1().Pods(l.ns).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
	return err
}

// now looks at the runtime and at the state files.
func (l *load) now() (found []judge.Finding) {
	sandboxes, err := l.n.Runtime.Runtimes.ListPodSandbox(l.t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		l.t.Error(err)
	}
	containers, err := l.n.Runtime.Runtimes.ListContainers(l.t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		l.t.Error(err)
	}
	aside, err := filepath.Glob(filepath.Join(l.n.State, "*", "*damaged*"))
	if err != nil {
		l.t.Error(err)
	}
	for _, file := range aside {
		found = append(found, judge.Finding{Kind: judge.Lost, What: "state was given up: " + file})
		if err := os.Remove(file); err != nil { // counted once
			l.t.Error(err)
		}
	}
	return append(found, judge.Runtime(sandboxes.GetItems(), containers.GetContainers())...)
}

// leftovers finds what pods that went long ago have left, while others come and go.
func (l *load) leftovers() []judge.Finding {
	sandboxes, err := l.n.Runtime.Runtimes.ListPodSandbox(l.t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		l.t.Error(err)
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return judge.Leftovers(sandboxes.GetItems(), l.w.gone, time.Now())
}

// end stops the churn, deletes all, and says what is left that should have gone.
func (l *load) end() judge.Round {
	left := l.leftovers()
	l.stopping()
	l.churners.Wait()
	l.w.mu.Lock()
	l.w.steady = map[string]bool{}
	l.w.mu.Unlock()
	ctx := l.t.Context()
	err := l.cp.Admin.CoreV1().Pods(l.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err == nil {
		err = l.w.until(ctx, "all pods to go", func() bool { return len(l.w.gone) == len(l.w.pods) })
	}
	l.w.find(judge.Lost, err)
	l.w.asking.Wait()
	l.w.find(judge.Lost, harness.Within(ctx, patience, l.empty))
	return judge.Round{Fault: "end", To: "all pods deleted", Findings: slices.Concat(left, l.w.take(), l.now())}
}

// empty says what of pods is left on the node when all have gone.
func (l *load) empty(ctx context.Context) error {
	sandboxes, err := l.n.Runtime.Runtimes.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	containers, err := l.n.Runtime.Runtimes.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	folders, err := os.ReadDir(filepath.Join(l.n.Root, "pods"))
	if err != nil {
		return err
	}
	mounts := harness.Mounts(filepath.Join(l.n.Root, "pods"))
	if n, m := len(sandboxes.GetItems()), len(containers.GetContainers()); n+m+len(folders)+len(mounts) > 0 {
		return fmt.Errorf("left of pods that are gone: %d sandboxes, %d containers, %d folders, mounts %v", n, m, len(folders), mounts)
	}
	return nil
}
