package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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

// TestTakeOver stops the reference kubelet and starts Sextant on its folders and
// runtime, and then the other way round. The pods, of all kinds, must not notice:
// the same containers, the same restart counts, and at the API server no version
// of a pod that said something else about it than the one before. docs/takeover.md
// is what it means for operators.
func TestTakeOver(t *testing.T) {
	cp := harness.StartControlPlane(t)
	seen := observe(t, cp)
	kubelet := harness.StartReference(t, harness.NodeOptions{ControlPlane: cp})
	n := &node{
		Node: harness.NewNode(t, harness.NodeOptions{Place: &kubelet.Place}), kind: "take-over", flavour: harness.V2, cp: cp,
		registry: harness.StartRegistry(t), seen: seen,
	}
	n.paths = house.Paths{Run: n.Run, State: n.State}
	e := newEnv(t, n)
	kinds := e.allKinds()

	e.takeOver("kubelet to Sextant", kinds, func() {
		kubelet.Kill(t)
		n.Up(t)
		n.awaitServing(t, usual)
	})
	e.atWork("sextant", kinds)
	e.takeOver("Sextant to kubelet", kinds, func() {
		n.Down(t)
		kubelet.Up(t)
	})
	e.atWork("kubelet", kinds)
	e.takeOver("kubelet to Sextant again", kinds, func() {
		kubelet.Kill(t)
		n.Up(t)
		n.awaitServing(t, usual)
	})
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
	add("crash", true, restartedTwice, func(*corev1.Pod) {}, "--exit-after=1s", "--exit-code=7")
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
	for name, wait := range waits {
		e.await(name, 2*usual, "to be as it stays", wait)
	}
	return kinds
}

func restartedTwice(pod *corev1.Pod) error {
	if c := pod.Status.ContainerStatuses; len(c) == 1 && c[0].RestartCount >= 2 && c[0].State.Waiting != nil {
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
	names := slices.Sorted(maps.Keys(kinds))
	steady := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return kinds[name].loops })
	before, began := e.state(names), time.Now()
	counts := e.restartCounts(names)
	change()
	// Whoever is at work now starts a new pod and has looked at the others.
	after := "after-" + strings.ReplaceAll(strings.ToLower(what), " ", "-")
	e.create(e.pod(after))
	e.awaitRunning(after, usual)
	now := e.state(names)
	for _, name := range names {
		if kinds[name].loops {
			uid := now.uids[name] + "/"
			maps.DeleteFunc(before.instances, func(key string, _ []instance) bool { return strings.HasPrefix(key, uid) })
		}
	}
	e.same(what, steady, before, now)
	e.unchanged(what, steady, before, began)
	for key, count := range e.restartCounts(names) {
		if count < counts[key] || count > counts[key] && !kinds[strings.Split(key, "/")[0]].loops {
			e.Errorf("%s: restart count of %s was %d and is %d", what, key, counts[key], count)
		}
	}
	e.Logf("%s: a new pod was Ready %.2f s after the old agent's end", what, time.Since(began).Seconds())
	e.delete(after, 5)
	e.awaitGone(after, usual)
}

// unchanged reports every version of the pods since a moment that said something
// else than the last one before it.
func (e *env) unchanged(what string, names []string, before state, began time.Time) {
	e.Helper()
	for _, name := range names {
		for _, pod := range since(e.n.seen, e.n.seen.pods, e.ns+"/"+name, began) {
			if got := brief(pod); got != before.pods[name] {
				e.Errorf("%s: the API saw pod %s as\n%s\nit was\n%s", what, name, got, before.pods[name])
			}
		}
	}
	for _, node := range since(e.n.seen, e.n.seen.nodes, e.n.Name, began) {
		if err := wantCondition(node, corev1.NodeReady, corev1.ConditionTrue); err != nil {
			e.Errorf("%s: the API saw the node not Ready: %v", what, err)
		}
	}
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
// answer about one, and end one with all it left.
func (e *env) atWork(agent string, kinds map[string]kind) {
	e.Helper()
	crash := e.restartCounts([]string{"crash"})["crash/hello"]
	config, err := e.n.cp.Admin.CoreV1().ConfigMaps(e.ns).Get(e.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	config.Data["greeting"] = "from " + agent
	if _, err := e.n.cp.Admin.CoreV1().ConfigMaps(e.ns).Update(e.Context(), config, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
	pod := e.n.seen.pod(e.ns, "volumes")
	e.file(pod, "/config/greeting", 2*usual, is("from "+agent))
	e.file(pod, "/secret/password", usual, is("swordfish"))
	if out := e.n.cp.Kubectl(e, "exec", "exec-probed", "--namespace="+e.ns, "--", "/hello", "echo", agent); out != agent+"\n" {
		e.Errorf("exec by %s in a pod it did not start: %q", agent, out)
	}
	e.await("crash", 4*usual, fmt.Sprintf("to be restarted more than %d times", crash), func(pod *corev1.Pod) error {
		if c := pod.Status.ContainerStatuses[0]; c.RestartCount <= crash {
			return errors.New(brief(pod))
		}
		return nil
	})
	// The first agent ends a pod with volumes, the second one with a sidecar.
	name := map[string]string{"sextant": "two", "kubelet": "steps"}[agent]
	uid := string(e.n.seen.pod(e.ns, name).UID)
	e.delete(name, 5)
	e.awaitGone(name, usual)
	e.awaitNoInstance(uid, usual)
	if left := harness.Mounts(e.n.Root + "/pods/" + uid); len(left) > 0 {
		e.Errorf("%s left mounts of a pod it did not start: %v", agent, left)
	}
	delete(kinds, name)
}
