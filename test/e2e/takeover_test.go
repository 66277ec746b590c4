// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// checked looks at the kubelet's node before it changes hands: nothing blocks, all pods
// count, and what would block is named.
func (e *env) checked(kubelet *harness.Reference, pods map[string]kind) {
	e.Helper()
	type finding struct{ Level, Subject, Message string }
	check := func(args ...string) (code int, found []finding) {
		e.Helper()
		cmd := e.n.Command(e.Context(), "check", append(append([]string{"-o=json", "--state-dir=" + e.n.State}, kubelet.Args()...), args...)...)
		var out, warn bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &warn
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			e.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &found); err != nil {
			e.Fatalf("sextant check: %v: %s%s", err, out.String(), warn.String())
		}
		return cmd.ProcessState.ExitCode(), found
	}
	has := func(found []finding, want finding) bool {
		return slices.ContainsFunc(found, func(f finding) bool {
			return f.Level == want.Level && f.Subject == want.Subject && strings.Contains(f.Message, want.Message)
		})
	}
	// The lab has no systemd, and a finding says so.
	code, found := check()
	if code != 1 || !has(found, finding{"differs", "systemd", "does not run this machine"}) || !has(found, finding{"ok", "runtime", "containerd"}) ||
		!has(found, finding{"ok", "network", ""}) || !has(found, finding{"ok", "configuration", kubelet.Name}) {
		e.Errorf("check: exit code %d, %v", code, found)
	}
	counted := slices.IndexFunc(found, func(f finding) bool { return f.Subject == "pods" })
	all, good := 0, 0
	if counted >= 0 {
		_, _ = fmt.Sscanf(found[counted].Message, "%d of %d", &good, &all) // else they stay 0
	}
	if all < len(pods) || good != all {
		e.Errorf("check counts %d of %d pods, and there are %d: %v", good, all, len(pods), found)
	}
	code, found = check("--max-pods=-1", "--container-runtime-endpoint=unix:///run/no-such.sock")
	if code != 2 || !has(found, finding{"blocks", "configuration", "maxPods"}) {
		e.Errorf("check of what cannot run: exit code %d, %v", code, found)
	}
	code, found = check("--container-runtime-endpoint=unix:///run/no-such.sock")
	if code != 2 || !has(found, finding{"blocks", "runtime", "no-such.sock"}) {
		e.Errorf("check without a runtime: exit code %d, %v", code, found)
	}
}

// TestTakeOver stops the reference kubelet and starts Sextant on its folders and
// runtime, then the other way round, and Sextant again. The pods, of all kinds, must not notice:
// the same containers, the same restart counts, and at the API server no version
// of a pod that said something else about it than the one before.
// docs/takeover.md is what it means for operators.
//
// The long form has the kubelet begin again without Sextant first, to see what an
// agent's change costs anyway, and waits for what takes its time.
func TestTakeOver(t *testing.T) {
	cp := harness.StartControlPlane(t)
	seen := observe(t, cp)
	kubelet := harness.StartReference(t, harness.NodeOptions{ControlPlane: cp})
	n := &node{
		Node: harness.NewNode(t, harness.NodeOptions{Place: &kubelet.Place}), kind: "take-over", flavour: harness.V2, cp: cp,
		registry: harness.StartRegistry(t), seen: seen,
	}
	n.paths = house.Paths{Run: n.Run, State: n.State}
	t.Cleanup(func() { kubelet.Kill(t) }) // or it would start again what is being removed
	e := newEnv(t, n)
	// On a busy machine a kubelet looks for its Node before it is there, and is not Ready until
	// it looks again: that is not Sextant's to answer for.
	harness.Eventually(t, usual, "the kubelet's node to be Ready", func(ctx context.Context) error {
		node, err := cp.Admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return wantCondition(node, corev1.NodeReady, corev1.ConditionTrue)
	})
	kinds := e.allKinds()
	toSextant := func() {
		kubelet.Kill(t)
		n.Up(t)
		n.awaitServing(t, usual)
	}
	toKubelet := func() {
		n.Down(t)
		kubelet.Up(t)
	}

	if !testing.Short() {
		e.settled(kinds)
		e.takeOver("kubelet to kubelet", kinds, func() {
			kubelet.Kill(t)
			kubelet.Up(t)
		})
		if pod := seen.pod(e.ns, "succeeded"); pod.Status.PodIP != "" {
			t.Error("the kubelet remembers addresses of pods that are over: it is not to be excused for them any more")
		}
	}
	e.checked(kubelet, kinds)
	e.takeOver("kubelet to Sextant", kinds, toSextant)
	e.atWork("sextant", kinds)
	e.takeOver("Sextant to kubelet", kinds, toKubelet)
	e.atWork("kubelet", kinds)
	e.takeOver("kubelet to Sextant again", kinds, toSextant)
	e.removeStatic()
}

// kind is a pod that lives through a take-over.
type kind struct {
	name string
	// loops: its container ends again and again, so that it changes by itself.
	loops bool
}

// allKinds makes pods of every kind and waits until each is as it will stay.
func (e *env) allKinds() map[string]kind {
	e.objects()
	kinds := map[string]kind{}
	for _, name := range e.five() {
		kinds[name] = kind{name: name}
	}
	phase := func(want corev1.PodPhase) func(*corev1.Pod) error {
		return func(pod *corev1.Pod) error {
			if pod.Status.Phase != want {
				return errors.New(brief(pod))
			}
			return nil
		}
	}
	waits := map[string]func(*corev1.Pod) error{}
	add := func(name string, loops bool, wait func(*corev1.Pod) error, change func(*corev1.Pod), args ...string) {
		pod := e.pod(name, args...)
		change(pod)
		e.create(pod)
		kinds[name], waits[name] = kind{name, loops}, wait
	}
	policy := func(p corev1.RestartPolicy) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = p }
	}
	add("succeeded", false, phase(corev1.PodSucceeded), policy(corev1.RestartPolicyNever), "echo", "done")
	add("failed", false, phase(corev1.PodFailed), policy(corev1.RestartPolicyNever), "exit", "3")
	add("onfailure", false, phase(corev1.PodSucceeded), policy(corev1.RestartPolicyOnFailure), "echo", "done")
	add("never", false, running, policy(corev1.RestartPolicyNever))
	add("crash", true, restarted, func(*corev1.Pod) {}, "--exit-after=1s", "--exit-code=7")
	add("unready", false, func(pod *corev1.Pod) error {
		if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil {
			return errors.New(brief(pod))
		}
		return nil
	}, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].ReadinessProbe = httpProbe("/no-such-page")
	})
	add("steps", false, running, sidecars)
	add("volumes", false, running, everyVolume)
	add("network", false, running, func(pod *corev1.Pod) {
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0] = corev1.Container{Name: "pause", Image: images.Pause}
	})
	add("two", false, running, func(pod *corev1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: images.Pause})
	})
	add("guaranteed", false, running, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = share{"100m", "100m", "64Mi", "64Mi"}.requirements()
	})
	add("burstable", false, running, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = share{"50m", "200m", "32Mi", "64Mi"}.requirements()
	})
	add("resized", false, running, sensitive)
	add("waits", false, running, sensitive)
	add("parts", false, running, func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", SubPath: "below"}}
	})
	add("debugged", false, running, func(*corev1.Pod) {})
	for name, wait := range waits {
		e.await(name, 2*usual, "to be as it stays", wait)
	}
	e.debug("debugged")
	e.deferred("waits")
	return kinds
}

// objects makes the ConfigMap and the Secret that pods with every volume refer to.
func (e *env) objects() {
	e.Helper()
	api := e.n.cp.Admin.CoreV1()
	if _, err := api.ConfigMaps(e.ns).Create(e.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"greeting": "hello"},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	if _, err := api.Secrets(e.ns).Create(e.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"password": []byte("swordfish")},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// debug gives a pod an ephemeral container and waits until that runs.
func (e *env) debug(name string) {
	e.Helper()
	pod := e.n.seen.pod(e.ns, name).DeepCopy()
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: images.Hello, Args: []string{"--http=:8090"}},
	}}
	if _, err := e.n.cp.Admin.CoreV1().Pods(e.ns).UpdateEphemeralContainers(e.Context(), name, pod, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.await(name, usual, "to be debugged", func(pod *corev1.Pod) error {
		if c := pod.Status.EphemeralContainerStatuses; len(c) != 1 || c[0].State.Running == nil {
			return fmt.Errorf("ephemeral containers %+v", c)
		}
		return nil
	})
}

func restarted(pod *corev1.Pod) error {
	if c := pod.Status.ContainerStatuses; len(c) == 1 && c[0].RestartCount >= 1 && c[0].State.Running == nil {
		return nil
	}
	return errors.New(brief(pod))
}

// sidecars gives a pod a container that runs before the others, one that goes on
// beside them and is probed.
func sidecars(pod *corev1.Pod) {
	share := []corev1.VolumeMount{{Name: "share", MountPath: "/share"}}
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.Volumes = []corev1.Volume{{Name: "share", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	probe := httpProbe("/healthz")
	probe.HTTPGet.Port, probe.FailureThreshold = intstr.FromInt32(8081), 60
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "first", Image: images.Hello, Args: []string{"touch", "/share/first"}, VolumeMounts: share},
		{Name: "sidecar", Image: images.Hello, Args: []string{"--http=:8081"}, RestartPolicy: &always, StartupProbe: probe, VolumeMounts: share},
	}
	pod.Spec.Containers[0].VolumeMounts = share
}

// everyVolume gives a pod a volume of each kind that needs no driver.
func everyVolume(pod *corev1.Pod) {
	for name, source := range map[string]corev1.VolumeSource{
		"config":  {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		"secret":  {Secret: &corev1.SecretVolumeSource{SecretName: "keys"}},
		"scratch": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"memory":  {EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
		"info": {DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
			Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
		}}}},
	} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
}

// takeOver changes the agent and compares what was before with what is after it.
func (e *env) takeOver(what string, kinds map[string]kind, change func()) {
	e.Helper()
	leaving := "leaving-" + slug(what)
	e.create(e.pod(leaving, "--term-delay=8s"))
	e.awaitRunning(leaving, usual)
	steady := slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(name string) bool { return kinds[name].loops })
	before, began := e.state(steady), time.Now()
	phasesBefore := map[string]string{}
	for _, name := range steady {
		phasesBefore[name] = phases(e.n.seen.pod(e.ns, name))
	}
	told, counts := e.told(steady), e.restartCounts(slices.Collect(maps.Keys(kinds)))
	e.delete(leaving, 30)
	e.await(leaving, usual, "to be told to end", func(pod *corev1.Pod) error {
		if pod.DeletionTimestamp == nil {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	change()
	// Whoever is at work now starts a new pod and has looked at the others.
	after := "after-" + slug(what)
	e.create(e.pod(after))
	e.awaitRunning(after, usual)
	ready := time.Since(began)
	// The pod that was being deleted ends in its own time, once.
	e.awaitGone(leaving, usual)
	e.endedWith(leaving, 0)
	for _, name := range steady {
		e.await(name, usual, "to be as it was", func(pod *corev1.Pod) error {
			if now := phases(pod); now != phasesBefore[name] {
				return fmt.Errorf("it was\n%s\nand is\n%s", phasesBefore[name], now)
			}
			return nil
		})
	}
	now := e.state(steady)
	for key, list := range before.instances {
		if !slices.Equal(list, now.instances[key]) {
			e.Errorf("%s: containers of %s were %v and are %v", what, key, list, now.instances[key])
		}
	}
	e.unchanged(what, told, began)
	for key, count := range e.restartCounts(slices.Collect(maps.Keys(kinds))) {
		if count < counts[key] || count > counts[key] && !kinds[strings.Split(key, "/")[0]].loops {
			e.Errorf("%s: restart count of %s was %d and is %d", what, key, counts[key], count)
		}
	}
	e.Logf("%s: %d pods; a new one was Ready %.2f s after the old agent's end", what, len(kinds), ready.Seconds())
	e.delete(after, 5)
	e.awaitGone(after, usual)
}

// phases is a pod's status in a line, without the address of one that is over.
func phases(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		pod = pod.DeepCopy()
		pod.Status.PodIP = ""
	}
	return brief(pod)
}

func slug(text string) string { return strings.ReplaceAll(strings.ToLower(text), " ", "-") }

// told is all that the API says of pods, by name: path, and value as JSON.
func (e *env) told(names []string) map[string]map[string]string {
	e.Helper()
	all := map[string]map[string]string{}
	for _, name := range names {
		all[name] = leaves(e, e.n.seen.pod(e.ns, name))
	}
	return all
}

// leaves are the paths of an object's metadata, specification and status with their
// values. Lists of what has a name or a type are listed by that.
func leaves(t testing.TB, object any) map[string]string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	var walk func(path string, node any)
	walk = func(path string, node any) {
		switch x := node.(type) {
		case map[string]any:
			for key, value := range x {
				walk(path+"."+key, value)
			}
		case []any:
			for i, value := range x {
				key := strconv.Itoa(i)
				if m, ok := value.(map[string]any); ok {
					if name, ok := cmp.Or(m["name"], m["type"]).(string); ok {
						key = name
					}
				}
				walk(path+"["+key+"]", value)
			}
		default:
			found[strings.TrimPrefix(path, ".")] = fmt.Sprint(x)
		}
	}
	walk("", tree)
	// How often it was written, and by whom.
	maps.DeleteFunc(found, func(path, _ string) bool {
		return path == "metadata.resourceVersion" || strings.HasPrefix(path, "metadata.managedFields")
	})
	return found
}

// unchanged reports every version of the pods since a moment that said something
// else than the last one before it.
func (e *env) unchanged(what string, told map[string]map[string]string, began time.Time) {
	e.Helper()
	for _, name := range slices.Sorted(maps.Keys(told)) {
		reported := map[string]bool{}
		for _, pod := range since(e.n.seen, e.n.seen.pods, e.ns+"/"+name, began) {
			now := leaves(e, pod)
			for path := range union(told[name], now) {
				if told[name][path] == now[path] {
					continue
				}
				difference := fmt.Sprintf("%s was %q and is %q", path, told[name][path], now[path])
				if !reported[difference] && !unavoidable(what, pod, path, told[name][path], now[path]) {
					reported[difference] = true
					e.Errorf("%s: pod %s: %s", what, name, difference)
				}
			}
		}
	}
	for _, node := range since(e.n.seen, e.n.seen.nodes, e.n.Name, began) {
		if err := wantCondition(node, corev1.NodeReady, corev1.ConditionTrue); err != nil {
			e.Errorf("%s: the API saw the node not Ready: %v", what, err)
		}
	}
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// noMemoryLimit is what the kernel has for no limit on cgroup v1: the largest number
// of whole pages.
const noMemoryLimit = "9007199254740988Ki"

// unavoidable reports whether a change of what the API says of a pod is one that
// docs/takeover.md names. All of them are the kubelet's own: it makes them when it
// is started again without Sextant, too.
func unavoidable(what string, pod *corev1.Pod, path, was, is string) bool {
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case path == "status.resources.limits.memory":
		// On cgroup v1 it takes the kernel's "no limit" for one, and Sextant does not.
		return was == "" && is == noMemoryLimit || was == noMemoryLimit && is == ""
	case path == "status.resources.requests.memory" && strings.Contains(what, "to Sextant"):
		// It keeps what a pod asked for before it was resized.
		return is == pod.Status.AllocatedResources.Memory().String()
	case strings.HasPrefix(path, "status.conditions[PodResizePending].") && strings.HasSuffix(what, "to kubelet"):
		// It does not read the condition back: it is away for a moment, and its times begin again.
		return true
	case over && strings.HasPrefix(path, "status.podIP"):
		// It forgets them. Sextant knows those of pods it has had before.
		return true
	case pod.Annotations[mirrorAnnotation] != "" && strings.HasSuffix(what, "to kubelet"):
		// It does not read the status of static pods back: times begin again, and
		// what is probed is not ready before the first probe.
		return path == "status.startTime" || strings.HasPrefix(path, "status.conditions[") && (strings.HasSuffix(path, "].lastTransitionTime") ||
			strings.HasPrefix(path, "status.conditions[Ready].") || strings.HasPrefix(path, "status.conditions[ContainersReady].")) ||
			strings.HasPrefix(path, "status.containerStatuses[") && strings.HasSuffix(path, "].ready")
	}
	return false
}

// restartCounts are those the API knows, by "pod/container".
func (e *env) restartCounts(names []string) map[string]int32 {
	counts := map[string]int32{}
	for _, name := range names {
		pod := e.n.seen.pod(e.ns, name)
		if pod == nil {
			e.Errorf("pod %s is not in the API", name)
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			counts[name+"/"+c.Name] = c.RestartCount
		}
	}
	return counts
}

// atWork has the new agent do what it must be able to do with pods it did not
// start: show new contents of a volume, count the restarts of one that crashes,
// answer about one, and end one with all it left. The kubelet takes more than a
// minute for the first, and a back-off takes its time.
func (e *env) atWork(agent string, kinds map[string]kind) {
	e.Helper()
	if agent == "sextant" || !testing.Short() {
		e.newContents(agent)
	}
	if out := e.n.cp.Kubectl(e, "exec", "exec-probed", "--namespace="+e.ns, "--", "/hello", "echo", agent); out != agent+"\n" {
		e.Errorf("exec by %s in a pod it did not start: %q", agent, out)
	}
	if !testing.Short() {
		crash := e.restartCounts([]string{"crash"})["crash/hello"]
		e.await("crash", 4*usual, fmt.Sprintf("to be restarted more than %d times", crash), func(pod *corev1.Pod) error {
			if c := pod.Status.ContainerStatuses[0]; c.RestartCount <= crash {
				return errors.New(brief(pod))
			}
			return nil
		})
	}
	e.resized(agent, kinds)
	// One ends a pod with a sidecar, the other one with a mount below a volume.
	name := map[string]string{"sextant": "steps", "kubelet": "parts"}[agent]
	uid := string(e.n.seen.pod(e.ns, name).UID)
	e.delete(name, 5)
	e.awaitGone(name, usual)
	e.awaitNoInstance(uid, usual)
	if left := harness.Mounts(e.n.Root + "/pods/" + uid); len(left) > 0 {
		e.Errorf("%s left mounts of a pod it did not start: %v", agent, left)
	}
	delete(kinds, name)
}

// settled waits until no container is young: a kubelet that begins forgets of those that have
// run for less than 10 s that they were ready.
func (e *env) settled(kinds map[string]kind) {
	e.Helper()
	for name, k := range kinds {
		if k.loops {
			continue
		}
		e.await(name, usual, "to have run for 12 s", func(pod *corev1.Pod) error {
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				if r := c.State.Running; r != nil && time.Since(r.StartedAt.Time) < 12*time.Second {
					return fmt.Errorf("%s runs since %s", c.Name, r.StartedAt.Time)
				}
			}
			return nil
		})
	}
}

// sensitive gives a pod a container that is restarted when its memory changes.
func sensitive(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources = share{"50m", "100m", "32Mi", "64Mi"}.requirements()
	pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
}

// resized has the agent make pods and change the resources of one that the other agent made,
// of one of its own, and ask for more than the node has for another. The next agent must know
// what is whose: it restarts none, refuses none, and gives none what it had before.
func (e *env) resized(agent string, kinds map[string]kind) {
	e.Helper()
	grown := map[string]share{"sextant": {"60m", "120m", "40Mi", "80Mi"}, "kubelet": {"70m", "140m", "48Mi", "96Mi"}}[agent]
	made, waiting := "made-by-"+agent, "waits-by-"+agent
	for _, name := range []string{made, waiting} {
		pod := e.pod(name)
		sensitive(pod)
		e.create(pod)
	}
	for _, name := range []string{made, waiting} {
		e.awaitRunning(name, usual)
		kinds[name] = kind{name: name}
	}
	for _, name := range []string{"resized", made} {
		e.resize(name, grown)
		if got := e.awaitResized(name, grown).Status.ContainerStatuses[0].RestartCount; name == made && got != 1 {
			e.Errorf("%s was restarted %d times for its memory, want once", name, got)
		}
	}
	e.deferred(waiting)
}

// deferred asks for more than the node has for a pod, and waits until the agent says so.
func (e *env) deferred(name string) {
	e.Helper()
	whole := e.n.seen.node(e.n.Name).Status.Allocatable.Cpu().String()
	e.resize(name, share{whole, whole, "32Mi", "64Mi"})
	e.await(name, usual, "to be deferred", func(pod *corev1.Pod) error {
		if c := pendingResize(pod); c == nil || c.Reason != corev1.PodReasonDeferred {
			return errors.New(brief(pod))
		}
		return nil
	})
}

// newContents changes a ConfigMap and waits until the pod that has it as a volume
// sees that.
func (e *env) newContents(agent string) {
	e.Helper()
	configs := e.n.cp.Admin.CoreV1().ConfigMaps(e.ns)
	config, err := configs.Get(e.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	config.Data["greeting"] = "from " + agent
	if _, err := configs.Update(e.Context(), config, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
	pod := e.n.seen.pod(e.ns, "volumes")
	e.file(pod, "/config/greeting", 2*usual, is("from "+agent))
	e.file(pod, "/secret/password", usual, is("swordfish"))
}
