// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// httpProbe asks every second, and one failure counts.
func httpProbe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}},
		PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 20,
	}
}

// readiness follows the container's own opinion, and nothing is restarted.
func readiness(e *env) {
	pod := e.pod("web", "--not-ready")
	pod.Spec.Containers[0].ReadinessProbe = httpProbe("/ready")
	e.create(pod)
	e.awaitEvent("web", "Unhealthy", usual, contains("Readiness probe failed: HTTP probe failed with statuscode: 500"))
	pod = e.await("web", usual, "to run unready", unready)
	e.post(pod, "/ready?ok=true")
	e.awaitRunning("web", usual)
	e.post(pod, "/ready?ok=false")
	pod = e.await("web", usual, "to be unready again", unready)
	e.post(pod, "/ready?ok=true")
	pod = e.awaitRunning("web", usual)
	if r := pod.Status.ContainerStatuses[0].RestartCount; r != 0 {
		e.Errorf("readiness restarted the container %d times", r)
	}
}

func unready(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" ||
		conditionTrue(pod, corev1.PodReady) || conditionTrue(pod, corev1.ContainersReady) || pod.Status.ContainerStatuses[0].Ready {
		return errors.New(brief(pod))
	}
	return nil
}

// liveness restarts a container that fails it.
func liveness(e *env) {
	pod := e.pod("web")
	pod.Spec.Containers[0].LivenessProbe = httpProbe("/healthz")
	pod.Spec.Containers[0].StartupProbe = httpProbe("/healthz") // the program takes a moment to listen
	pod.Spec.Containers[0].StartupProbe.FailureThreshold = 120
	e.create(pod)
	pod = e.awaitRunning("web", usual)
	before := pod.Status.ContainerStatuses[0]
	e.post(pod, "/healthz?ok=false")
	pod = e.await("web", usual, "to be restarted", func(pod *corev1.Pod) error {
		if c := pod.Status.ContainerStatuses[0]; c.RestartCount != 1 || c.ContainerID == before.ContainerID {
			return errors.New(brief(pod))
		}
		return running(pod)
	})
	if c := pod.Status.ContainerStatuses[0]; c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ContainerID != before.ContainerID {
		e.Errorf("last state %+v, it was container %s", c.LastTerminationState, before.ContainerID)
	}
	e.awaitEvent("web", "Unhealthy", usual, contains("Liveness probe failed: HTTP probe failed with statuscode: 500"))
	e.awaitEvent("web", "Killing", usual, contains("Container hello failed liveness probe, will be restarted"))
}

// startup holds the other probes back: this liveness probe would kill at once.
func startup(e *env) {
	pod := e.pod("slow", "--start-delay=5s")
	c := &pod.Spec.Containers[0]
	c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = httpProbe("/healthz"), httpProbe("/healthz"), httpProbe("/ready")
	c.StartupProbe.FailureThreshold = 120
	e.create(pod)
	pod = e.awaitRunning("slow", usual)
	if c := pod.Status.ContainerStatuses[0]; c.RestartCount != 0 || c.Started == nil || !*c.Started {
		e.Errorf("after the start: %+v", c)
	}
	if !slices.ContainsFunc(e.n.seen.history(e.ns, "slow"), func(p *corev1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].State.Running != nil && c[0].Started != nil && !*c[0].Started
	}) {
		e.Error("it was never seen running but not started")
	}
}

// probeKinds has one container for each other kind of probe.
func probeKinds(e *env) {
	pod := e.pod("kinds")
	one := func(name string, port int, probe corev1.ProbeHandler, args ...string) corev1.Container {
		return corev1.Container{
			Name: name, Image: images.Hello, Args: append(args, fmt.Sprintf("--http=:%d", port)),
			ReadinessProbe: &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 1, TimeoutSeconds: 20},
		}
	}
	pod.Spec.Containers = []corev1.Container{
		one("hello", 8080, corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "get", "http://localhost:8080/ready"}}}, "--not-ready"),
		one("tcp", 8081, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9091)}}, "--tcp=:9091"),
		one("grpc", 8082, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9092}}, "--grpc=:9092"),
	}
	e.create(pod)
	ready := func(want string) func(*corev1.Pod) error {
		return func(pod *corev1.Pod) error {
			got := ""
			for _, c := range pod.Status.ContainerStatuses {
				if c.Ready {
					got += c.Name + " "
				}
			}
			if got != want || pod.Status.PodIP == "" {
				return fmt.Errorf("ready: %q; %s", got, brief(pod))
			}
			return nil
		}
	}
	pod = e.await("kinds", usual, "to have its TCP and gRPC containers ready", ready("grpc tcp "))
	e.awaitEvent("kinds", "Unhealthy", usual, contains("Readiness probe failed: "))
	e.post(pod, "/ready?ok=true")
	e.await("kinds", usual, "to have every container ready", ready("grpc hello tcp "))
	e.awaitRunning("kinds", usual)
}

// commandsEnd has a probe that forks what ignores signals, in its session and out
// of it, and holds the output open. Nothing of it outlives its time; the container's
// own processes, and another probe at the same times, are left alone.
func commandsEnd(e *env) {
	if err := e.n.Runtime.ImportImage(e.Context(), harness.The(e.T).Archive(e.T, images.Busybox), images.Busybox); err != nil {
		e.Fatal(err)
	}
	// Seconds that no other test sleeps, told apart by node.
	own, forked := e.marks()
	script := func(text string) []string { return []string{"sh", "-c", text} }
	pod := e.shell("forks", script(fmt.Sprintf("sleep %d & setsid sleep %d & trap 'exit 0' TERM; while :; do sleep 0.2; done", own, own))...)
	c := &pod.Spec.Containers[0]
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: script(fmt.Sprintf(
			"trap '' TERM INT HUP; (trap '' TERM INT HUP; sleep %[1]d; sleep %[1]d) & setsid sh -c 'trap \"\" TERM; sleep %[1]d; sleep %[1]d' & sleep %[1]d; sleep %[1]d", forked))}},
		PeriodSeconds: 1, TimeoutSeconds: 3, // on a busy machine the command takes its time to begin
	}
	c.LivenessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: script("sleep 0.3; true")}},
		PeriodSeconds: 1, TimeoutSeconds: 60,
	}
	e.create(pod)
	e.awaitEvent("forks", "Unhealthy", usual, contains("Readiness probe failed: command timed out: "))
	seen := map[int]bool{}
	harness.Eventually(e, usual, "commands to begin and to be gone, three times", func(context.Context) error {
		now := sleepers(forked)
		gone := 0
		for _, pid := range now {
			seen[pid] = true
		}
		for pid := range seen {
			if !slices.Contains(now, pid) {
				gone++
			}
		}
		if gone < 9 || len(now) > 6 {
			return fmt.Errorf("%d of %d are gone, %d are there", gone, len(seen), len(now))
		}
		return nil
	})
	if got := sleepers(own); len(got) != 2 {
		e.Errorf("of the container's own two processes there are %d", len(got))
	}
	pod = e.await("forks", usual, "to run on", unready)
	if r := pod.Status.ContainerStatuses[0].RestartCount; r != 0 {
		e.Errorf("the container was restarted %d times", r)
	}
	e.delete("forks", 1)
	e.awaitGone("forks", usual)
	if left := append(sleepers(forked), sleepers(own)...); len(left) > 0 {
		e.Errorf("after the pod there are %v", left)
	}
}

// marks are two numbers of seconds that only this test on this node sleeps.
func (e *env) marks() (own, forked int) {
	for i, kind := range []string{"debian-bus", "debian-nobus", "v2-bus", "v2-nobus"} {
		if e.n.kind == kind {
			return 770000 + i, 880000 + i
		}
	}
	return 779999, 889999
}

// sleepers are the processes of the machine that sleep for so many seconds, shells
// that wait for one not among them.
func sleepers(seconds int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil || string(b) != "sleep\x00"+strconv.Itoa(seconds)+"\x00" {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(file, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
