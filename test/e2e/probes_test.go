package e2e_test

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sextant-node/sextant/test/images"
)

// httpProbe asks every second, and one failure counts.
func httpProbe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}},
		PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 5,
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
			ReadinessProbe: &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 1, TimeoutSeconds: 5},
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
