// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// apiPod runs a pod of the API server and reads of it what users read.
func apiPod(e *env) {
	e.create(e.pod("web"))
	pod := e.awaitRunning("web", usual)
	c := pod.Status.ContainerStatuses[0]
	switch {
	case pod.Status.HostIP != e.n.IP:
		e.Errorf("hostIP %s, the node has %s", pod.Status.HostIP, e.n.IP)
	case pod.Status.StartTime.IsZero(), c.Started == nil || !*c.Started, c.ContainerID == "", c.ImageID == "":
		e.Errorf("status %+v", pod.Status)
	case !conditionTrue(pod, corev1.PodInitialized), !conditionTrue(pod, corev1.ContainersReady), !conditionTrue(pod, corev1.PodScheduled):
		e.Errorf("conditions %+v", pod.Status.Conditions)
	}
	// Without a readiness probe a pod is ready before its server is.
	harness.Eventually(e, usual, "an answer from the pod", func(ctx context.Context) error {
		code, body, err := ask(ctx, "GET", pod, "/")
		if err == nil && (code != 200 || !strings.HasPrefix(body, "hello from web")) {
			err = fmt.Errorf("%d %q", code, body)
		}
		return err
	})
	line := e.n.cp.Kubectl(e, "get", "pod", "web", "-o", "wide", "--no-headers", "--namespace="+e.ns)
	if !regexp.MustCompile(`^web +1/1 +Running +0 +\S+ +` + regexp.QuoteMeta(pod.Status.PodIP) + ` +` + e.n.Name + ` `).MatchString(line) {
		e.Errorf("kubectl get pod -o wide: %s", line)
	}
	// Events are told in their own time.
	want := regexp.MustCompile(`(?s)Node: +` + e.n.Name + `/` + regexp.QuoteMeta(e.n.IP) +
		`\n.*Status: +Running\n.*IP: +` + regexp.QuoteMeta(pod.Status.PodIP) +
		`\n.*Container ID: +containerd://.*State: +Running\n.*Ready: +True\n.*Ready +True` +
		`.*Normal +Pulled .*Container image "` + regexp.QuoteMeta(images.Hello) + `" already present on machine` +
		`.*Normal +Created .*Normal +Started `)
	harness.Eventually(e, usual, "kubectl describe to tell all", func(context.Context) error {
		if text := e.n.cp.Kubectl(e, "describe", "pod", "web", "--namespace="+e.ns); !want.MatchString(text) {
			return errors.New(text)
		}
		return nil
	})
	if log := e.n.cp.Kubectl(e, "logs", "web", "--namespace="+e.ns); !strings.Contains(log, "hello starts") {
		e.Errorf("kubectl logs: %q", log)
	}
}

// restarts lets a container end again and again.
func restarts(e *env) {
	e.create(e.pod("crash", "--exit-after=1s", "--exit-code=7"))
	e.await("crash", usual, "to be restarted once", func(pod *corev1.Pod) error {
		if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].RestartCount < 1 {
			return errors.New(brief(pod))
		}
		return nil
	})
	pod := e.await("crash", usual, "to be in CrashLoopBackOff", func(pod *corev1.Pod) error {
		if w := pod.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" {
			return errors.New(brief(pod))
		}
		return nil
	})
	c := pod.Status.ContainerStatuses[0]
	if want := fmt.Sprintf("back-off 10s restarting failed container=hello pod=crash_%s(%s)", e.ns, pod.UID); c.State.Waiting.Message != want {
		e.Errorf("message %q, the kubelet says %q", c.State.Waiting.Message, want)
	}
	if last := c.LastTerminationState.Terminated; last == nil || last.ExitCode != 7 || last.Reason != "Error" || last.ContainerID == "" || last.FinishedAt.IsZero() {
		e.Errorf("last state %+v", last)
	}
	if pod.Status.Phase != corev1.PodRunning || conditionTrue(pod, corev1.PodReady) || c.Ready {
		e.Errorf("status %s", brief(pod))
	}
	if c.RestartCount != 1 {
		e.Errorf("restart count %d during the first back-off; the API saw\n%s", c.RestartCount, e.story("crash"))
	}
	e.await("crash", usual, "to be restarted after 10 s", func(pod *corev1.Pod) error {
		if c := pod.Status.ContainerStatuses[0]; c.RestartCount < 2 {
			return errors.New(brief(pod))
		}
		return nil
	})
	e.awaitEvent("crash", "BackOff", usual, contains("Back-off restarting failed container hello in pod crash_"))
	// Counts only grow, one at a time.
	last := int32(0)
	for _, version := range e.n.seen.history(e.ns, "crash") {
		for _, c := range version.Status.ContainerStatuses {
			if c.RestartCount < last || c.RestartCount > last+1 {
				e.Errorf("restart count went from %d to %d; the API saw\n%s", last, c.RestartCount, e.story("crash"))
			}
			last = c.RestartCount
		}
	}
}

// restartPolicyNever sees one pod succeed and one fail, and OnFailure start a
// failed container again but no other.
func restartPolicyNever(e *env) {
	once := func(name string, policy corev1.RestartPolicy, args ...string) {
		pod := e.pod(name, args...)
		pod.Spec.RestartPolicy = policy
		e.create(pod)
	}
	once("good", corev1.RestartPolicyNever, "echo", "done")
	once("bad", corev1.RestartPolicyNever, "exit", "3")
	once("calm", corev1.RestartPolicyOnFailure, "echo", "done")
	for name, want := range map[string]struct {
		phase  corev1.PodPhase
		code   int32
		reason string
	}{
		"good": {corev1.PodSucceeded, 0, "Completed"},
		"bad":  {corev1.PodFailed, 3, "Error"},
		"calm": {corev1.PodSucceeded, 0, "Completed"},
	} {
		pod := e.await(name, usual, "to be "+string(want.phase), func(pod *corev1.Pod) error {
			if pod.Status.Phase != want.phase {
				return errors.New(brief(pod))
			}
			return nil
		})
		c := pod.Status.ContainerStatuses[0]
		if term := c.State.Terminated; term == nil || term.ExitCode != want.code || term.Reason != want.reason || c.RestartCount != 0 {
			e.Errorf("%s: %s", name, brief(pod))
		}
		if conditionTrue(pod, corev1.PodReady) {
			e.Errorf("%s is ready: %+v", name, pod.Status.Conditions)
		}
	}
	if log := e.n.cp.Kubectl(e, "logs", "good", "--namespace="+e.ns); log != "done\n" {
		e.Errorf("the log of a pod that ended: %q", log)
	}
	once("retry", corev1.RestartPolicyOnFailure, "exit", "1")
	e.await("retry", usual, "to be started again", func(pod *corev1.Pod) error {
		if c := pod.Status.ContainerStatuses; len(c) == 0 || c[0].RestartCount < 1 {
			return errors.New(brief(pod))
		}
		return nil
	})
}

// story is every version of a pod so far, a line each.
func (e *env) story(name string) string {
	var all []string
	for _, p := range e.n.seen.history(e.ns, name) {
		all = append(all, brief(p))
	}
	return strings.Join(all, "\n")
}

// initContainers run one after the other, before the others, and hand over what
// they wrote.
func initContainers(e *env) {
	pod := e.pod("steps")
	share := []corev1.VolumeMount{{Name: "share", MountPath: "/share"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "share", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "one", Image: images.Hello, Args: []string{"touch", "/share/one"}, VolumeMounts: share},
		{Name: "two", Image: images.Hello, Args: []string{"test", "/share/one"}, VolumeMounts: share},
	}
	pod.Spec.Containers[0].VolumeMounts = share
	e.create(pod)
	pod = e.awaitRunning("steps", usual)
	for _, c := range pod.Status.InitContainerStatuses {
		if term := c.State.Terminated; term == nil || term.ExitCode != 0 || !c.Ready || c.RestartCount != 0 {
			e.Errorf("init container: %+v", c)
		}
	}
	e.file(pod, "/share/one", usual, is(""))
	initialized := slices.IndexFunc(e.n.seen.history(e.ns, "steps"), func(p *corev1.Pod) bool { return conditionTrue(p, corev1.PodInitialized) })
	ready := slices.IndexFunc(e.n.seen.history(e.ns, "steps"), func(p *corev1.Pod) bool { return conditionTrue(p, corev1.PodReady) })
	if initialized < 0 || ready < 0 || initialized > ready {
		e.Errorf("ready (version %d) before initialized (version %d)", ready, initialized)
	}
}

// follow returns the lines of a container's log through the API server as they
// come.
func (e *env) follow(pod string) <-chan string {
	e.Helper()
	stream, err := e.n.cp.Admin.CoreV1().Pods(e.ns).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(e.Context())
	if err != nil {
		e.Fatalf("follow the log of %s: %v", pod, err)
	}
	e.Cleanup(func() { _ = stream.Close() }) // it has ended
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(stream); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	return lines
}

// awaitLine reads a log until a line has the wanted text.
func (e *env) awaitLine(lines <-chan string, want string, limit time.Duration) {
	e.Helper()
	timeout := time.After(limit)
	var all []string
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				e.Errorf("the log ended without %q: %q", want, all)
				return
			}
			if all = append(all, line); strings.Contains(line, want) {
				return
			}
		case <-timeout:
			e.Errorf("no %q in the log within %s: %q", want, limit, all)
			return
		}
	}
}

// deleteInTime deletes a pod that ends when told to: long before its grace is
// over.
func deleteInTime(e *env) {
	e.create(e.pod("polite"))
	pod := e.awaitRunning("polite", usual)
	log := e.follow("polite")
	e.awaitLine(log, "serving", usual)
	began := time.Now()
	e.delete("polite", 120)
	e.awaitLine(log, "got terminated, ends", usual)
	e.awaitGone("polite", usual)
	e.Logf("gone %s after the deletion", time.Since(began).Round(time.Millisecond))
	e.endedWith("polite", 0)
	e.awaitNoInstance(string(pod.UID), usual)
}

// endedWith checks that the API was told how a container ended before the pod
// left it.
func (e *env) endedWith(name string, code int32) {
	e.Helper()
	history := e.n.seen.history(e.ns, name)
	last := history[len(history)-1]
	if c := last.Status.ContainerStatuses; len(c) != 1 || c[0].State.Terminated == nil || c[0].State.Terminated.ExitCode != code {
		e.Errorf("the last the API knew of pod %s: %s", name, brief(last))
	}
	if last.DeletionTimestamp == nil {
		e.Errorf("pod %s went without a deletion timestamp", name)
	}
}

// deleteIgnoringTerm deletes a pod that does not listen: SIGTERM, the grace, and
// SIGKILL.
func deleteIgnoringTerm(e *env) {
	const grace = 3
	e.create(e.pod("stubborn", "--ignore-term"))
	pod := e.awaitRunning("stubborn", usual)
	log := e.follow("stubborn")
	e.awaitLine(log, "serving", usual)
	began := time.Now()
	e.delete("stubborn", grace)
	e.awaitLine(log, "got terminated, ignored", usual)
	e.awaitGone("stubborn", usual)
	if took := time.Since(began); took < grace*time.Second {
		e.Errorf("gone after %s, its grace was %d s", took, grace)
	} else {
		e.Logf("gone %s after the deletion with %d s of grace", took.Round(time.Millisecond), grace)
	}
	e.endedWith("stubborn", 137)
	e.awaitNoInstance(string(pod.UID), usual)
	e.awaitEvent("stubborn", "Killing", usual, contains("Stopping container hello"))
}

// deleteByForce removes the object first; the node then stops what runs.
func deleteByForce(e *env) {
	e.create(e.pod("forced", "--term-delay=1s"))
	pod := e.awaitRunning("forced", usual)
	e.n.cp.Kubectl(e, "delete", "pod", "forced", "--grace-period=0", "--force", "--namespace="+e.ns)
	e.awaitGone("forced", usual)
	e.awaitNoInstance(string(pod.UID), usual)
	harness.Eventually(e, usual, "the node to forget the pod", func(ctx context.Context) error {
		if pod, err := e.n.Pod(ctx, "forced"); err == nil {
			return fmt.Errorf("there is %+v", pod)
		}
		return nil
	})
}

// pushHello stores an image that nodes do not have under another name, which
// would be as good to them.
func pushHello(t testing.TB, registry *harness.Registry, repo string) {
	t.Helper()
	img, err := images.Builder{Source: harness.The(t).Source}.Image(t.Context(), images.Hello)
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.Config(img, v1.Config{Entrypoint: []string{"/hello"}, Labels: map[string]string{"repo": repo}}); err != nil {
		t.Fatal(err)
	}
	registry.Push(t, repo+":v1", img)
}

// missingImage pulls an image that the registry gets only later.
func missingImage(e *env) {
	repo := "late-" + e.n.kind
	e.n.registry.Withhold(repo)
	pushHello(e, e.n.registry, repo)
	pod := e.pod("late")
	pod.Spec.Containers[0].Image = e.n.registry.Name(repo + ":v1")
	e.create(pod)
	waits := func(reason string) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.State.Waiting != nil && c.State.Waiting.Reason == reason && strings.Contains(c.State.Waiting.Message, repo)
			})
		}
	}
	pod = e.await("late", usual, "to be in ImagePullBackOff", func(pod *corev1.Pod) error {
		if !waits("ImagePullBackOff")(pod) {
			return errors.New(brief(pod))
		}
		return nil
	})
	if got := pod.Status.ContainerStatuses[0].State.Waiting.Message; !strings.HasPrefix(got, `Back-off pulling image "`+pod.Spec.Containers[0].Image+`"`) {
		e.Errorf("message %q", got)
	}
	history := e.n.seen.history(e.ns, "late")
	failed, waited := slices.IndexFunc(history, waits("ErrImagePull")), slices.IndexFunc(history, waits("ImagePullBackOff"))
	if failed < 0 || failed > waited {
		e.Errorf("ErrImagePull did not come before ImagePullBackOff; the API saw\n%s", e.story("late"))
	}
	e.n.registry.Release(repo)
	pod = e.awaitRunning("late", 90*time.Second)
	if r := pod.Status.ContainerStatuses[0].RestartCount; r != 0 {
		e.Errorf("restart count %d", r)
	}
	e.awaitEvent("late", "Failed", usual, contains("Failed to pull image"))
	e.awaitEvent("late", "BackOff", usual, contains("Back-off pulling image"))
	e.awaitEvent("late", "Pulled", usual, contains("Successfully pulled image"))
}
