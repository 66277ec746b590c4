// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// comparedPod is a pod that both nodes get.
type comparedPod struct {
	name string
	// build changes a pod with one hello container "main".
	build func(*corev1.Pod)
	// settled says why a version of the pod is not yet the one to compare.
	settled func(*corev1.Pod) error
	// unsteady pods restart, or wait and try again, all the time.
	unsteady bool
	// static pods are written to the manifest folder.
	static bool
	// then is done once the pod runs.
	then func(*testing.T, *side)
}

func (c comparedPod) nameOn(s *side) string {
	if c.static {
		return c.name + "-" + s.Name
	}
	return c.name
}

// held keeps the object of a deleted pod to look at.
const held = "sextant.test/held"

func main(pod *corev1.Pod) *corev1.Container { return &pod.Spec.Containers[0] }

func args(a ...string) func(*corev1.Pod) { return func(pod *corev1.Pod) { main(pod).Args = a } }

// all applies several changes.
func all(changes ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, c := range changes {
			c(pod)
		}
	}
}

func policy(p corev1.RestartPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = p }
}

func image(name string, p corev1.PullPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { main(pod).Image, main(pod).ImagePullPolicy = name, p }
}

func initial(name string, args ...string) corev1.Container {
	return corev1.Container{Name: name, Image: images.Hello, Args: args}
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func phase(want corev1.PodPhase) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if pod.Status.Phase != want {
			return errors.New(brief(pod))
		}
		return nil
	}
}

// statuses are those of all containers of a pod.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
}

// waiting is satisfied while a container waits for that reason, restarted at
// least so often.
func waiting(reason string, restarts int32) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		for _, c := range statuses(pod) {
			if w := c.State.Waiting; w != nil && w.Reason == reason && c.RestartCount >= restarts {
				return nil
			}
		}
		return errors.New(brief(pod))
	}
}

func restartedAndReady(pod *corev1.Pod) error {
	if err := running(pod); err != nil {
		return err
	}
	if c := pod.Status.ContainerStatuses[0]; c.RestartCount < 1 {
		return errors.New(brief(pod))
	}
	return nil
}

// finished is a deleted pod that nothing is left to do for.
func finished(pod *corev1.Pod) error {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 0 {
		return fmt.Errorf("deletion %v: %s", pod.DeletionTimestamp, brief(pod))
	}
	return nil
}

func remove(name string, grace int64) func(*testing.T, *side) {
	return func(t *testing.T, s *side) {
		err := s.cp.Admin.CoreV1().Pods(s.ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
		if err != nil {
			t.Error(err)
		}
	}
}

// comparedPods are all pods that both nodes get.
func comparedPods() []comparedPod { return append(lifecyclePods(), kubectlPods()...) }

// lifecyclePods are pods in each state that a pod can be in.
func lifecyclePods() []comparedPod {
	seconds := func(n int64) *int64 { return &n }
	yes := true
	always := corev1.ContainerRestartPolicyAlways
	ready := func(pod *corev1.Pod) { main(pod).ReadinessProbe = httpProbe("/ready") }
	noGrace := func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = seconds(1) }
	return []comparedPod{
		{name: "plain", settled: running, build: func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app": "plain"}
			main(pod).Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
			pod.Spec.Containers = append(pod.Spec.Containers, initial("second", "--http=:8081", "--log-every=1s"))
		}},
		{name: "guaranteed", settled: running, build: func(pod *corev1.Pod) {
			main(pod).Resources = corev1.ResourceRequirements{Requests: amounts("50m", "64Mi"), Limits: amounts("50m", "64Mi")}
		}},
		{name: "burstable", settled: running, build: func(pod *corev1.Pod) {
			main(pod).Resources = corev1.ResourceRequirements{Requests: amounts("10m", "16Mi"), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
		}},
		{name: "podlevel", settled: running, build: func(pod *corev1.Pod) {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("20m", "32Mi"), Limits: amounts("50m", "64Mi")}
		}},
		{name: "init", settled: running, build: func(pod *corev1.Pod) {
			side := initial("side", "--http=:8082")
			side.RestartPolicy = &always
			pod.Spec.InitContainers = []corev1.Container{initial("one", "echo", "one"), side, initial("two", "echo", "two")}
		}},
		{name: "initfailed", settled: phase(corev1.PodFailed), build: all(policy(corev1.RestartPolicyNever), func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{initial("one", "exit", "4"), initial("two", "echo", "two")}
		})},
		{name: "initcrash", unsteady: true, settled: waiting("CrashLoopBackOff", 1), build: func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{initial("one", "exit", "4")}
		}},
		{name: "failed", settled: phase(corev1.PodFailed), build: all(policy(corev1.RestartPolicyNever), args("cat", "/none"), func(pod *corev1.Pod) {
			main(pod).TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		})},
		{name: "said", settled: phase(corev1.PodSucceeded), build: all(policy(corev1.RestartPolicyNever), args("write", "/said", "the", "last", "word"), func(pod *corev1.Pod) {
			main(pod).TerminationMessagePath = "/said"
		})},
		{name: "succeeded", settled: phase(corev1.PodSucceeded), build: all(policy(corev1.RestartPolicyNever), args("echo", "done"))},
		{name: "onfailure", settled: phase(corev1.PodSucceeded), build: all(policy(corev1.RestartPolicyOnFailure), args("echo", "done"))},
		{name: "halfdone", settled: func(pod *corev1.Pod) error {
			if c := pod.Status.ContainerStatuses; len(c) != 2 || c[1].State.Terminated == nil || c[0].State.Running == nil {
				return errors.New(brief(pod))
			}
			return nil
		}, build: all(policy(corev1.RestartPolicyNever), func(pod *corev1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, initial("second", "exit", "5"))
		})},
		{name: "crash", unsteady: true, settled: waiting("CrashLoopBackOff", 1), build: args("exit", "7")},
		{name: "unready", settled: func(pod *corev1.Pod) error {
			if err := unready(pod); err != nil || pod.Status.ContainerStatuses[0].State.Running == nil {
				return errors.New(brief(pod))
			}
			return nil
		}, build: all(args("--not-ready"), func(pod *corev1.Pod) { main(pod).ReadinessProbe = httpProbe("/ready") })},
		{name: "probes", settled: running, build: all(args("--tcp=:9091", "--grpc=:9092"), func(pod *corev1.Pod) {
			probe := func(h corev1.ProbeHandler) *corev1.Probe {
				return &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 60}
			}
			main(pod).StartupProbe = probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "get", "http://localhost:8080/ready"}}})
			main(pod).LivenessProbe = probe(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9091)}})
			main(pod).ReadinessProbe = probe(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9092}})
		})},
		{name: "unhealthy", unsteady: true, settled: restartedAndReady, build: all(noGrace, args("--not-healthy"), func(pod *corev1.Pod) {
			main(pod).LivenessProbe = httpProbe("/healthz")
			main(pod).LivenessProbe.InitialDelaySeconds = 5
		})},
		{name: "neverstarted", unsteady: true, settled: waiting("CrashLoopBackOff", 1), build: all(noGrace, func(pod *corev1.Pod) {
			main(pod).StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 2, ProbeHandler: corev1.ProbeHandler{
				Exec: &corev1.ExecAction{Command: []string{"/hello", "exit", "9"}},
			}}
		})},
		{name: "volumes", settled: running, build: volumesOfAllKinds},
		{name: "missingimage", unsteady: true, settled: waiting("ImagePullBackOff", 0), build: image(harness.RegistryHost+"/none:v1", "")},
		{name: "pulled", settled: running, build: image(harness.RegistryHost+"/compared:v1", corev1.PullAlways)},
		{name: "neverpulled", settled: waiting("ErrImageNeverPull", 0), build: image(harness.RegistryHost+"/other:v1", corev1.PullNever)},
		{name: "badimage", settled: waiting("InvalidImageName", 0), build: image("Not//An Image", "")},
		{name: "nopullsecret", settled: running, build: func(pod *corev1.Pod) {
			pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "none"}}
		}},
		{name: "noconfig", settled: waiting("CreateContainerConfigError", 0), build: func(pod *corev1.Pod) {
			main(pod).EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}}
		}},
		{name: "nosecret", settled: waiting("ContainerCreating", 0), build: func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "none", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none"}}}}
			main(pod).VolumeMounts = []corev1.VolumeMount{{Name: "none", MountPath: "/none"}}
		}},
		{name: "asroot", settled: waiting("CreateContainerConfigError", 0), build: func(pod *corev1.Pod) {
			main(pod).SecurityContext = &corev1.SecurityContext{RunAsNonRoot: &yes}
		}},
		{name: "nocommand", unsteady: true, settled: waiting("CrashLoopBackOff", 1), build: func(pod *corev1.Pod) { main(pod).Command = []string{"/none"} }},
		{name: "hostnetwork", settled: running, build: all(args("--http=127.0.0.1:0"), func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })},
		{name: "deadline", settled: phase(corev1.PodFailed), build: func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = seconds(120) }}, // long after the start, on a slow machine too
		{name: "rejected", settled: phase(corev1.PodFailed), build: func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"no": "such"} }},
		{name: "toolarge", settled: phase(corev1.PodFailed), build: func(pod *corev1.Pod) { main(pod).Resources.Requests = amounts("1000", "10Ti") }},
		{name: "sysctl", settled: phase(corev1.PodFailed), build: func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}}
		}},
		{name: "otheros", settled: phase(corev1.PodFailed), build: func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }},
		{name: "poststart", unsteady: true, settled: waiting("CrashLoopBackOff", 1), build: all(noGrace, func(pod *corev1.Pod) {
			main(pod).Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "exit", "6"}}}}
		})},
		{name: "gate", settled: func(pod *corev1.Pod) error {
			if !conditionTrue(pod, corev1.ContainersReady) || conditionTrue(pod, corev1.PodReady) {
				return errors.New(brief(pod))
			}
			return nil
		}, build: func(pod *corev1.Pod) {
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "sextant.test/gate"}}
		}},
		{name: "onexit", unsteady: true, settled: waiting("CrashLoopBackOff", 1), build: all(policy(corev1.RestartPolicyNever), args("exit", "42"), func(pod *corev1.Pod) {
			never := corev1.ContainerRestartPolicyNever
			main(pod).RestartPolicy = &never
			main(pod).RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestart,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		})},
		{name: "deleted", settled: finished, then: remove("deleted", 5), build: all(ready, func(pod *corev1.Pod) { pod.Finalizers = []string{held} })},
		{name: "killed", settled: finished, then: remove("killed", 1), build: all(ready, args("--ignore-term"), func(pod *corev1.Pod) {
			pod.Finalizers = []string{held}
			main(pod).Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "exit", "6"}}}}
		})},
		{name: "debugged", settled: func(pod *corev1.Pod) error {
			if c := pod.Status.EphemeralContainerStatuses; len(c) != 1 || c[0].State.Terminated == nil {
				return errors.New(brief(pod))
			}
			return nil
		}, then: func(t *testing.T, s *side) { addDebugger(t, s, "debugged") }, build: func(*corev1.Pod) {}},
		{name: "static", static: true, settled: running, build: func(*corev1.Pod) {}},
		{name: "staticcrash", unsteady: true, static: true, settled: waiting("CrashLoopBackOff", 1), build: args("exit", "7")},
	}
}

func volumesOfAllKinds(pod *corev1.Pod) {
	c := main(pod)
	add := func(name string, source corev1.VolumeSource, change ...func(*corev1.VolumeMount)) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		m := corev1.VolumeMount{Name: name, MountPath: "/" + name}
		for _, f := range change {
			f(&m)
		}
		c.VolumeMounts = append(c.VolumeMounts, m)
	}
	settings := corev1.LocalObjectReference{Name: "settings"}
	strict := corev1.RecursiveReadOnlyEnabled
	add("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, func(m *corev1.VolumeMount) { m.SubPath = "below" })
	add("memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: quantity("1Mi")}})
	add("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}, func(m *corev1.VolumeMount) {
		m.ReadOnly, m.RecursiveReadOnly = true, &strict
	})
	add("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings}})
	add("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}})
	add("info", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
	}}})
	add("all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: settings}},
	}}})
}

// addDebugger adds an ephemeral container to a running pod, as kubectl debug does.
func addDebugger(t *testing.T, s *side, name string) {
	pods := s.cp.Admin.CoreV1().Pods(s.ns)
	pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: images.Hello, Args: []string{"exit", "3"}},
			TargetContainerName:      "main",
		}}
		_, err = pods.UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Error(err)
	}
}

// populateLimit is how long all pods may take to be as they should: the slowest
// is restarted once.
const populateLimit = 5 * time.Minute

// furnish gives both nodes the images and objects that the pods refer to.
func (p pair) furnish(t *testing.T) {
	t.Helper()
	registry := harness.StartRegistry(t)
	pushHello(t, registry, "compared")
	pushHello(t, registry, "moving")
	p.importBusybox(t)
	for _, s := range []*side{p.reference, p.sextant} {
		api := s.cp.Admin.CoreV1()
		_, err := api.ConfigMaps(s.ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
		if err == nil {
			_, err = api.Secrets(s.ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// populate makes the pods on both nodes and waits until they are as they should
// be; what is not in time shows in what is compared.
func (p pair) populate(t *testing.T) {
	t.Helper()
	pods := comparedPods()
	p.each(func(s *side) { p.placeAll(t, s, pods) })
	t.Cleanup(func() { p.release(t, pods) })
}

// placeAll makes pods on a node, all at once, and waits for them.
func (p pair) placeAll(t *testing.T, s *side, pods []comparedPod) {
	var wait sync.WaitGroup
	for _, c := range pods {
		wait.Go(func() {
			if err := p.place(t, s, c); err != nil {
				t.Logf("%s: pod %s: %v", s.name, c.name, err)
			}
		})
	}
	wait.Wait()
}

// place makes a pod on a node and waits for it.
func (p pair) place(t *testing.T, s *side, c comparedPod) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: c.name},
		Spec:       corev1.PodSpec{NodeName: s.Name, Containers: []corev1.Container{initial("main")}},
	}
	c.build(pod)
	if c.static {
		pod.Spec.NodeName = ""
		s.AddManifest(t, c.name+".yaml", pod)
	} else if _, err := s.cp.Admin.CoreV1().Pods(s.ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	await := func(ok func(*corev1.Pod) error) error {
		return harness.Within(t.Context(), populateLimit, func(context.Context) error {
			err := errors.New("it is not in the API")
			for _, v := range s.seen.history(s.ns, c.nameOn(s)) {
				if err = ok(v); err == nil {
					return nil
				}
			}
			return err
		})
	}
	if c.then != nil {
		if err := await(running); err != nil {
			return err
		}
		c.then(t, s)
	}
	return await(c.settled)
}

// release lets go of the pods that were held for the test to look at.
func (p pair) release(t *testing.T, pods []comparedPod) {
	// Not the test's context: that has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p.each(func(s *side) {
		for _, c := range pods {
			pod := s.seen.pod(s.ns, c.name)
			if pod == nil || !slices.Contains(pod.Finalizers, held) {
				continue
			}
			patch := []byte(`{"metadata":{"finalizers":null}}`)
			if _, err := s.cp.Admin.CoreV1().Pods(s.ns).Patch(ctx, c.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
}
