// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/e2e/compare"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// leastTogether is how many families must have moved together in all.
const leastTogether = 45

// moves does the same things on both nodes, before anything else is there, and
// compares by how much each metric has moved: while the pods start and are used, and
// while they end. What moves, and how exactly both must agree, is in
// testdata/compare/moves-up.txt and moves-down.txt.
func (p pair) moves(t *testing.T) {
	pods := movingPods()
	awaitSweep(t, p.sextant)
	began := time.Now()
	up := p.scrapes(t, "moves-0")
	p.each(func(s *side) {
		p.placeAll(t, s, pods)
		for _, c := range imagelessPods() { // gone before they are tried again
			if err := p.place(t, s, c); err != nil {
				t.Errorf("%s: pod %s: %v", s.name, c.name, err)
			}
			s.removeAll(t, []comparedPod{c})
		}
		p.use(t, s)
	})
	together := map[string]bool{}
	down := p.movedAs(t, "moves-up", up, began, together)
	began = time.Now()
	p.each(func(s *side) { s.removeAll(t, pods) })
	p.movedAs(t, "moves-down", down, began, together)
	if len(together) < leastTogether {
		t.Errorf("%d families moved together, not %d", len(together), leastTogether)
	}
}

// awaitSweep returns when the node has looked for ResourceSlices of drivers that it does not
// have, which it does once, 30 to 40 s after its start: that request would be counted.
func awaitSweep(t *testing.T, s *side) {
	t.Helper()
	api := s.cp.Admin.ResourceV1().ResourceSlices()
	slice := nodeSlice(s.ns+".never.example", s.Name)
	if _, err := api.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made := time.Now()
	harness.Eventually(t, 2*usual, "the look for slices", func(ctx context.Context) error {
		// It may have been before the slice was there.
		if _, err := api.Get(ctx, slice.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) && time.Since(made) < 45*time.Second {
			return fmt.Errorf("it is not gone: %v", err)
		}
		return nil
	})
}

// scrapes are the metrics of each side.
func (p pair) scrapes(t *testing.T, as string) map[*side]compare.Scrape {
	t.Helper()
	all, err := p.scrape(t.Context(), as)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (p pair) scrape(ctx context.Context, as string) (map[*side]compare.Scrape, error) {
	all := map[*side]compare.Scrape{}
	var mu sync.Mutex
	var errs []error
	p.each(func(s *side) {
		var pages compare.Scrape
		for _, path := range []string{"/metrics", "/metrics/probes"} {
			page, err := s.get(ctx, path)
			if err == nil {
				err = s.keep(as+path, page)
			}
			pages = append(pages, page)
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
		mu.Lock()
		all[s] = pages
		mu.Unlock()
	})
	return all, errors.Join(errs...)
}

// movedAs waits until both nodes' metrics have moved, since a scrape, as a table
// says, and still do after some seconds. It returns the last scrape. began is when the
// first was; what the nodes have asked since is told where they do not agree.
func (p pair) movedAs(t *testing.T, name string, before map[*side]compare.Scrape, began time.Time, together map[string]bool) map[*side]compare.Scrape {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "compare", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := compare.ParseMoveTable(string(text))
	if err != nil {
		t.Fatalf("testdata/compare/%s.txt: %v", name, err)
	}
	var after map[*side]compare.Scrape
	var report compare.MoveReport
	judge := func(ctx context.Context) error {
		now, err := p.scrape(ctx, name)
		if err != nil {
			return err
		}
		reference, err := compare.MovesOf(before[p.reference], now[p.reference])
		if err != nil {
			return err
		}
		sextant, err := compare.MovesOf(before[p.sextant], now[p.sextant])
		if err != nil {
			return err
		}
		after = now
		if report = table.Judge(reference, sextant); !report.OK() {
			return fmt.Errorf("the nodes' metrics moved otherwise than testdata/compare/%s.txt says", name)
		}
		return nil
	}
	err = harness.Within(t.Context(), compareLimit, func(ctx context.Context) error {
		if err := judge(ctx); err != nil {
			return err
		}
		harness.Rest(t, compareAgain)
		return judge(ctx)
	})
	if t.Logf("%s\n%s", name, report); err != nil {
		t.Error(err)
		for _, s := range []*side{p.reference, p.sextant} {
			t.Logf("%s asked the API server since:\n%s", s.name, p.asked(t, s, began))
		}
	}
	for _, family := range report.Together {
		together[family] = true
	}
	return after
}

// asked says what a node has asked the API server since a time, by the object and in the
// order of the first request of each.
func (p pair) asked(t *testing.T, s *side, since time.Time) string {
	t.Helper()
	log, err := os.Open(p.audit)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	all, err := figures.ReadAudit(log, "system:node:"+s.Name)
	if err != nil {
		t.Error(err)
	}
	var order []string
	at := map[string][]string{}
	for _, r := range all {
		if r.Stage != "ResponseComplete" || r.Received.Before(since) {
			continue
		}
		what := r.Kind() + " " + r.ObjectRef.Namespace + "/" + r.ObjectRef.Name
		if at[what] == nil {
			order = append(order, what)
		}
		at[what] = append(at[what], r.Received.Format("15:04:05.000"))
	}
	var b strings.Builder
	for _, what := range order {
		fmt.Fprintf(&b, "%s at %s\n", what, strings.Join(at[what], ", "))
	}
	return b.String()
}

// movingPods do each thing that metrics count, and each a number of times that does
// not depend on how fast the node is.
func movingPods() []comparedPod {
	noGrace := func(pod *corev1.Pod) { now := int64(1); pod.Spec.TerminationGracePeriodSeconds = &now }
	always := corev1.ContainerRestartPolicyAlways
	// once fails the first time only: the folder outlives the container.
	once := func(pod *corev1.Pod, script string) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "kept", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		main(pod).Image, main(pod).Command = images.Busybox, []string{"sh", "-c", script}
		main(pod).VolumeMounts = []corev1.VolumeMount{{Name: "kept", MountPath: "/kept"}}
	}
	return []comparedPod{
		{name: "move-plain", settled: running, build: func(pod *corev1.Pod) {
			main(pod).ReadinessProbe = httpProbe("/ready")
			main(pod).Resources = corev1.ResourceRequirements{Requests: amounts("10m", "16Mi"), Limits: amounts("100m", "64Mi")}
			pod.Spec.Containers = append(pod.Spec.Containers, initial("second", "--http=:8081"))
		}},
		{name: "move-init", settled: running, build: all(noGrace, func(pod *corev1.Pod) {
			side := initial("side", "--http=:8082")
			side.RestartPolicy = &always
			pod.Spec.InitContainers = []corev1.Container{initial("one", "echo", "one"), side, initial("two", "echo", "two")}
		})},
		{name: "move-done", settled: phase(corev1.PodSucceeded), build: all(policy(corev1.RestartPolicyNever), args("echo", "done"))},
		{name: "move-failed", settled: phase(corev1.PodFailed), build: all(policy(corev1.RestartPolicyNever), args("exit", "4"))},
		{name: "move-again", settled: restartedAndReady, build: all(noGrace, func(pod *corev1.Pod) {
			once(pod, "[ -e /kept/x ] && exec sleep 100000; touch /kept/x; exit 5")
		})},
		{name: "move-unhealthy", settled: restartedAndReady, build: all(noGrace, func(pod *corev1.Pod) {
			once(pod, "exec sleep 100000")
			main(pod).LivenessProbe = &corev1.Probe{PeriodSeconds: 2, FailureThreshold: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{
				Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "[ -e /kept/x ] && exit 0; touch /kept/x; exit 1"}},
			}}
		})},
		{name: "move-volumes", settled: running, build: volumesOfAllKinds},
		{name: "move-image", settled: running, build: func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "image", VolumeSource: corev1.VolumeSource{
				Image: &corev1.ImageVolumeSource{Reference: images.Hello, PullPolicy: corev1.PullIfNotPresent},
			}}}
			main(pod).VolumeMounts = []corev1.VolumeMount{{Name: "image", MountPath: "/image"}}
		}},
		{name: "move-pulled", settled: running, build: image(harness.RegistryHost+"/moving:v1", corev1.PullAlways)},
		{name: "move-rejected", settled: phase(corev1.PodFailed), build: func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"no": "such"} }},
		{name: "move-sleeps", settled: running, build: func(pod *corev1.Pod) {
			main(pod).Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 20}}}
			// The server of the first speaks HTTP, so the hook of the second falls back to it.
			pod.Spec.Containers = append(pod.Spec.Containers, initial("second", "--http=:8081"))
			pod.Spec.Containers[1].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: httpProbe("/").HTTPGet.Port, Scheme: corev1.URISchemeHTTPS},
			}}
		}},
		{name: "move-debugged", settled: func(pod *corev1.Pod) error {
			if c := pod.Status.EphemeralContainerStatuses; len(c) != 1 || c[0].State.Terminated == nil {
				return errors.New(brief(pod))
			}
			return nil
		}, then: func(t *testing.T, s *side) { addDebugger(t, s, "move-debugged") }, build: noGrace},
		{name: "move-static", static: true, settled: running, build: noGrace},
	}
}

// imagelessPods are pods that wait for an image and try again.
func imagelessPods() []comparedPod {
	return []comparedPod{
		{name: "move-missing", settled: waiting("ErrImagePull", 0), build: image(harness.RegistryHost+"/none:v1", "")},
		{name: "move-neverpulled", settled: waiting("ErrImageNeverPull", 0), build: image(harness.RegistryHost+"/other:v1", corev1.PullNever)},
	}
}

// use is what is done with the pods while they run.
func (p pair) use(t *testing.T, s *side) {
	ctx := t.Context()
	for range 3 {
		for _, command := range []string{
			"exec move-plain -c=main -- /hello echo said",
			"logs move-plain -c=main",
			"patch pod move-plain --subresource=resize --patch=" +
				`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"20m"},"limits":{"cpu":"200m"}}}]}}`,
		} {
			if _, err := s.kubectlText(ctx, strings.Fields(command)...); err != nil {
				t.Error(err)
			}
		}
		for _, r := range []string{
			"POST /run/" + s.ns + "/move-plain/main?cmd=/hello+echo+said", "POST /run/" + s.ns + "/move-plain/main?cmd=/none",
			"GET /pods", "GET /nothing", "GET /stats/summary", "GET /configz",
		} {
			method, path, _ := strings.Cut(r, " ")
			if _, err := s.ask(ctx, "admin", method, path); err != nil {
				t.Errorf("%s: %s: %v", s.name, r, err)
			}
		}
	}
	err := s.await(ctx, "move-plain", func(pod *corev1.Pod) error {
		if got := pod.Status.ContainerStatuses[0].Resources; got == nil || got.Limits.Cpu().MilliValue() != 200 {
			return fmt.Errorf("resources %v", got)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", s.name, err)
	}
}

// removeAll deletes pods and waits until they are gone.
func (s *side) removeAll(t *testing.T, pods []comparedPod) {
	two := int64(2)
	var wait sync.WaitGroup
	for _, c := range pods {
		wait.Go(func() {
			var err error
			if c.static {
				err = os.Remove(filepath.Join(s.Manifests, c.name+".yaml"))
			} else {
				err = s.cp.Admin.CoreV1().Pods(s.ns).Delete(t.Context(), c.name, metav1.DeleteOptions{GracePeriodSeconds: &two})
			}
			if err == nil {
				err = harness.Within(t.Context(), usual, func(context.Context) error {
					if pod := s.seen.pod(s.ns, c.nameOn(s)); pod != nil {
						return errors.New(brief(pod))
					}
					return nil
				})
			}
			if err != nil {
				t.Errorf("%s: pod %s: %v", s.name, c.name, err)
			}
		})
	}
	wait.Wait()
}
