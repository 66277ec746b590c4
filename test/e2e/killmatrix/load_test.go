package killmatrix_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
	"github.com/sextant-node/sextant/test/images"
)

// patience is how long a pod may take to get Ready or to go, faults and all,
// before it counts as stuck or lost.
const patience = 2 * time.Minute

// load is a node with pods on it and a watch over them.
type load struct {
	t  *testing.T
	cp *harness.ControlPlane
	n  *harness.Node
	ns string

	mu       sync.Mutex
	last     map[string]*corev1.Pod // by name, as the API server told last
	gone     map[string]bool
	steady   map[string]bool // pods that nobody touches, once they are as they stay
	findings []judge.Finding // since the last look
	news     chan struct{}   // closed at the next news

	number   int
	running  sync.RWMutex // held for reading while a request may be under way
	stopping context.CancelFunc
	churners sync.WaitGroup
}

// watch begins to look at what the API server tells of a node's pods.
func watch(t *testing.T, cp *harness.ControlPlane, n *harness.Node) *load {
	t.Helper()
	l := &load{
		t: t, cp: cp, n: n, ns: cp.Namespace(t), last: map[string]*corev1.Pod{}, gone: map[string]bool{}, steady: map[string]bool{},
		news: make(chan struct{}), stopping: func() {},
	}
	factory := informers.NewSharedInformerFactoryWithOptions(cp.Admin, 0, informers.WithNamespace(l.ns))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.saw(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { l.saw(obj.(*corev1.Pod)) },
		DeleteFunc: l.lost,
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return l
}

// startLoad fills a node and returns once all that is to be steady is.
func startLoad(t *testing.T, cp *harness.ControlPlane, n *harness.Node, ready, unready, churn int, seed uint64) *load {
	t.Helper()
	l := watch(t, cp, n)
	ctx, cancel := context.WithCancel(t.Context())
	l.stopping = cancel
	if _, err := cp.Admin.CoreV1().ConfigMaps(l.ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"greeting": "hello"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range ready + unready {
		name := fmt.Sprintf("steady-%d", i)
		if err := l.create(t.Context(), l.pod(name, i, i >= ready)); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	for i, name := range names {
		if err := l.await(t.Context(), name, func(p *corev1.Pod) bool { return i < ready && isReady(p) || i >= ready && runs(p) }); err != nil {
			t.Fatalf("before anything was done: %v", err)
		}
	}
	l.keep(names)
	for i := range churn {
		l.churners.Go(func() { l.churn(ctx, rand.New(rand.NewPCG(seed, uint64(i))), i) })
	}
	return l
}

// keep holds these pods to what they are from now on.
func (l *load) keep(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		l.steady[name] = true
	}
}

// pod is one of a few kinds: with probes over HTTP or by a command, with volumes.
func (l *load) pod(name string, i int, unready bool) *corev1.Pod {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}},
			PeriodSeconds: 2, FailureThreshold: 5, TimeoutSeconds: 10,
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName:   l.n.Name,
		Containers: []corev1.Container{{Name: "hello", Image: images.Hello}},
	}}
	c := &pod.Spec.Containers[0]
	switch {
	case unready:
		c.ReadinessProbe = probe("/no-such-page")
	case i%3 == 0:
		c.ReadinessProbe, c.LivenessProbe = probe("/ready"), probe("/healthz")
	case i%10 == 1:
		c.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "test", "/config/greeting"}}},
			PeriodSeconds: 5, FailureThreshold: 5, TimeoutSeconds: 10,
		}
	}
	if i%2 == 1 {
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}, {Name: "scratch", MountPath: "/scratch"}}
	}
	return pod
}

// churn starts and ends pods until ctx ends: while one ends, the next starts.
func (l *load) churn(ctx context.Context, random *rand.Rand, lane int) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("churn-%d-%d", lane, i)
		pod := l.pod(name, random.IntN(4), false)
		// Every second one takes its time to end.
		if random.IntN(2) == 0 {
			pod.Spec.Containers[0].Args = []string{"--term-delay=2s"}
		}
		if err := l.create(ctx, pod); err != nil {
			l.found(ctx, judge.Stuck, err)
			continue
		}
		l.found(ctx, judge.Stuck, l.await(ctx, name, isReady))
		ending.Wait()
		ending.Go(func() { l.found(ctx, judge.Lost, l.remove(ctx, name)) })
	}
}

// found notes an error, unless it is the end.
func (l *load) found(ctx context.Context, kind judge.Kind, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.findings = append(l.findings, judge.Finding{Kind: kind, What: err.Error()})
}

func (l *load) create(ctx context.Context, pod *corev1.Pod) error {
	return l.request(func() error {
		_, err := l.cp.Admin.CoreV1().Pods(l.ns).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// request asks the API server for something, once it is there.
func (l *load) request(ask func() error) error {
	l.running.RLock()
	defer l.running.RUnlock()
	return ask()
}

// remove deletes a pod and waits until it is gone.
func (l *load) remove(ctx context.Context, name string) error {
	grace := int64(5)
	err := l.request(func() error {
		return l.cp.Admin.CoreV1().Pods(l.ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return l.until(ctx, "pod "+name+" to go", func() bool { return l.gone[name] })
}

// pause holds requests of the load back until resume.
func (l *load) pause()  { l.running.Lock() }
func (l *load) resume() { l.running.Unlock() }

func (l *load) saw(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.last[pod.Name]
	l.last[pod.Name] = pod
	if l.steady[pod.Name] && before != nil {
		l.findings = append(l.findings, judge.Steady(before, pod)...)
	}
	l.tell()
}

func (l *load) lost(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod := obj.(*corev1.Pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone[pod.Name] = true; l.steady[pod.Name] {
		l.findings = append(l.findings, judge.Finding{Kind: judge.Restart, What: "pod " + pod.Name + " is gone"})
	}
	l.tell()
}

// tell wakes those who wait; l.mu is held.
func (l *load) tell() {
	close(l.news)
	l.news = make(chan struct{})
}

func (l *load) await(ctx context.Context, name string, is func(*corev1.Pod) bool) error {
	return l.until(ctx, "pod "+name, func() bool { return l.last[name] != nil && is(l.last[name]) })
}

// until waits for something that the watch tells; done is called with l.mu held.
func (l *load) until(ctx context.Context, what string, done func() bool) error {
	limit := time.After(patience)
	for {
		l.mu.Lock()
		ok, news := done(), l.news
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-news:
		case <-limit:
			return fmt.Errorf("%s: not within %s", what, patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func isReady(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func runs(p *corev1.Pod) bool {
	return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
}

// judged does something, makes a pod at that moment, ends the fault, and collects
// what was found until that pod is Ready.
func (l *load) judged(fault, to string, do func() (mend func())) judge.Round {
	l.t.Helper()
	r := judge.Round{Fault: fault, To: to}
	l.number++
	name := fmt.Sprintf("after-%d", l.number)
	began := time.Now()
	mend := do()
	made := l.cpAway(fault, name)
	mending := time.Now()
	mend()
	if took := time.Since(mending); took > time.Second {
		began = time.Now() // a fault that lasts
	}
	if !made {
		began = time.Now()
		l.found(l.t.Context(), judge.Stuck, l.create(l.t.Context(), l.pod(name, 2, false)))
	}
	if err := l.await(l.t.Context(), name, isReady); err != nil {
		r.Findings = append(r.Findings, judge.Finding{Kind: judge.Stuck, What: err.Error()})
	} else {
		r.Recovery = max(time.Since(began), time.Millisecond)
	}
	l.churners.Go(func() { l.found(l.t.Context(), judge.Lost, l.remove(l.t.Context(), name)) })
	if err := harness.Within(l.t.Context(), patience, l.serving); err != nil {
		l.t.Errorf("%s to %s: %v", fault, to, err)
	}
	r.Findings = append(r.Findings, l.look()...)
	return r
}

// look tells what was found since the last look, and what is twice in the runtime.
func (l *load) look() []judge.Finding {
	l.t.Helper()
	sandboxes, err := l.n.Runtime.Runtimes.ListPodSandbox(l.t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		l.t.Error(err)
	}
	containers, err := l.n.Runtime.Runtimes.ListContainers(l.t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		l.t.Error(err)
	}
	found := judge.Runtime(sandboxes.GetItems(), containers.GetContainers())
	l.mu.Lock()
	defer l.mu.Unlock()
	found = append(found, l.findings...)
	l.findings = nil
	return found
}

// cpAway makes the pod of a round, unless there is nobody to make it at.
func (l *load) cpAway(fault, name string) (made bool) {
	if fault == "away" {
		return false
	}
	l.found(l.t.Context(), judge.Stuck, l.create(l.t.Context(), l.pod(name, 2, false)))
	return true
}

// serving says who does not serve.
func (l *load) serving(ctx context.Context) error {
	all, err := l.n.Services(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Health != "serving" {
			return fmt.Errorf("%s is %s: %s", s.Service, s.Health, s.Reason)
		}
	}
	return nil
}

// pid is the process of a service, or 0 while there is none.
func (l *load) pid(s house.Service) int {
	for _, p := range l.n.Processes() {
		if p.Name == string(s) {
			return p.PID
		}
	}
	return 0
}

func (l *load) rest(d time.Duration) {
	select {
	case <-l.t.Context().Done():
	case <-time.After(d):
	}
}

// end stops the churn and tells what is left that should have gone.
func (l *load) end() (found []judge.Finding) {
	l.stopping()
	l.churners.Wait()
	l.mu.Lock()
	names := l.last
	l.steady = map[string]bool{}
	found = l.findings
	l.mu.Unlock()
	err := l.cp.Admin.CoreV1().Pods(l.ns).DeleteCollection(l.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err == nil {
		err = l.until(l.t.Context(), "all pods to go", func() bool { return len(l.gone) == len(names) })
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		found = append(found, judge.Finding{Kind: judge.Lost, What: err.Error()})
	}
	return found
}
