// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// What a kill may cost: all services serve again, and a pod that is made in that
// moment runs. The second is mostly the pod's own start. On a machine on which a pod
// takes long to start with nothing killed, both may take as many times that.
const (
	servesWithin = 5 * time.Second
	runsWithin   = 15 * time.Second
	servesTimes  = 3
	runsTimes    = 5
)

// five are the pods that live through every kill: static and not, with and
// without probes and volumes.
func (e *env) five() (names []string) {
	static := e.pod("static")
	probed := e.pod("static-probed")
	probe(&probed.Spec.Containers[0])
	for _, pod := range []*corev1.Pod{static, probed} {
		pod.Spec.NodeName = ""
		e.addManifest(e.manifest(pod.Name), pod)
		names = append(names, pod.Name+"-"+e.n.Name)
	}
	plain := e.pod("plain")
	all := e.pod("probed")
	probe(&all.Spec.Containers[0])
	exec := e.pod("exec-probed")
	exec.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	c := &exec.Spec.Containers[0]
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "test", "/data"}}},
		PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 3,
	}
	for _, pod := range []*corev1.Pod{plain, all, exec} {
		e.create(pod)
		names = append(names, pod.Name)
	}
	for _, name := range names {
		e.awaitRunning(name, usual)
	}
	return names
}

// probe gives a container every probe, each second, with the usual thresholds.
func probe(c *corev1.Container) {
	c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = httpProbe("/healthz"), httpProbe("/ready"), httpProbe("/healthz")
	c.StartupProbe.FailureThreshold, c.ReadinessProbe.FailureThreshold, c.LivenessProbe.FailureThreshold = 120, 3, 3
}

// removeStatic ends the static ones of the five.
func (e *env) removeStatic() {
	for _, name := range []string{"static", "static-probed"} {
		e.n.RemoveManifest(e, e.manifest(name))
	}
}

// state is what must stay as it is.
type state struct {
	instances map[string][]instance
	pods      map[string]string // status by name, without times
	uids      map[string]string
}

func (e *env) state(names []string) state {
	e.Helper()
	s := state{pods: map[string]string{}, uids: map[string]string{}}
	harness.Eventually(e, usual, "the runtime to list containers", func(ctx context.Context) (err error) {
		s.instances, err = e.n.instances(ctx, e.ns)
		return err
	})
	of := map[string]bool{}
	for _, name := range names {
		if pod := e.n.seen.pod(e.ns, name); pod != nil {
			s.pods[name], s.uids[name] = brief(pod), uidOnNode(pod)
			of[s.uids[name]] = true
		}
	}
	maps.DeleteFunc(s.instances, func(key string, _ []instance) bool {
		uid, _, _ := strings.Cut(key, "/")
		return !of[uid]
	})
	return s
}

// uidOnNode is the UID under which the node knows a pod: a static pod's own, not
// its mirror's.
func uidOnNode(pod *corev1.Pod) string {
	if uid := pod.Annotations[mirrorAnnotation]; uid != "" {
		return uid
	}
	return string(pod.UID)
}

// same reports what differs from the state before.
func (e *env) same(what string, names []string, before, after state) {
	e.Helper()
	for _, name := range names {
		if before.pods[name] != after.pods[name] || before.uids[name] != after.uids[name] {
			e.Errorf("%s: pod %s was %s %s\nand is %s %s", what, name, before.uids[name], before.pods[name], after.uids[name], after.pods[name])
		}
	}
	for key, list := range before.instances {
		if !slices.Equal(list, after.instances[key]) {
			e.Errorf("%s: containers of %s were %v and are %v", what, key, list, after.instances[key])
		}
	}
}

// flips reports every version of the pods, and of the node, seen since a moment
// that said something else than all is well.
func (e *env) flips(what string, names []string, after time.Time) {
	e.Helper()
	for _, name := range names {
		for _, pod := range since(e.n.seen, e.n.seen.pods, e.ns+"/"+name, after) {
			if err := running(pod); err != nil || !conditionTrue(pod, corev1.ContainersReady) || !conditionTrue(pod, corev1.PodInitialized) || pod.DeletionTimestamp != nil {
				e.Errorf("%s: the API saw pod %s as %s", what, name, brief(pod))
			}
		}
	}
	for _, node := range since(e.n.seen, e.n.seen.nodes, e.n.Name, after) {
		if err := wantCondition(node, corev1.NodeReady, corev1.ConditionTrue); err != nil {
			e.Errorf("%s: the API saw the node not Ready: %v", what, err)
		}
	}
}

// killMatrix kills each process in turn under five running pods. Nothing that
// runs may notice, and what is new must run soon.
func killMatrix(e *env) {
	names := e.five()
	e.n.awaitServing(e.T, usual)
	calm := e.undisturbed()
	e.Logf("%-14s with nothing killed a new pod runs after %5.2f s", e.n.kind, calm.Seconds())
	for _, s := range e.n.services() {
		e.Run(string(s), func(t *testing.T) {
			sub := &env{T: t, n: e.n, ns: e.ns}
			dumpOnFailure(t, e.n, e.ns)
			before, began := sub.state(names), time.Now()
			serving, runs := sub.killOne(s, calm)
			t.Logf("%-14s kill -9 %-10s all services serve after %5.2f s, a new pod runs after %5.2f s", e.n.kind, s, serving.Seconds(), runs.Seconds())
			sub.same("kill -9 "+string(s), names, before, sub.state(names))
			sub.flips("kill -9 "+string(s), names, began)
		})
	}
	e.removeStatic()
}

// undisturbed is how long a pod takes to run with nothing killed.
func (e *env) undisturbed() time.Duration {
	e.Helper()
	began := time.Now()
	e.create(e.pod("undisturbed"))
	e.awaitRunning("undisturbed", usual)
	took := time.Since(began)
	e.delete("undisturbed", 5)
	e.awaitGone("undisturbed", usual)
	return took
}

// killOne kills a service, makes a pod at once, and says how long it took until
// every service served again and until the pod ran. calm is what the machine gives.
func (e *env) killOne(s house.Service, calm time.Duration) (serving, runs time.Duration) {
	e.Helper()
	mayServe, mayRun := max(servesWithin, servesTimes*calm), max(runsWithin, runsTimes*calm)
	old, err := e.n.hello(e.Context(), s)
	if err != nil {
		e.Fatal(err)
	}
	began := time.Now()
	if err := unix.Kill(int(old.GetPid()), unix.SIGKILL); err != nil {
		e.Fatal(err)
	}
	name := "after-" + string(s)
	e.create(e.pod(name))
	harness.Eventually(e, max(usual, 2*mayRun), "the node to be whole after kill -9 "+string(s), func(ctx context.Context) error {
		var errs []error
		if serving == 0 {
			if err := e.again(ctx, s, old); err != nil {
				errs = append(errs, err)
			} else {
				serving = time.Since(began)
			}
		}
		if runs == 0 {
			if pod := e.n.seen.pod(e.ns, name); pod == nil {
				errs = append(errs, errors.New("the new pod is not in the API"))
			} else if err := running(pod); err != nil {
				errs = append(errs, err)
			} else {
				runs = time.Since(began)
			}
		}
		return errors.Join(errs...)
	})
	if serving > mayServe {
		e.Errorf("kill -9 %s: all services served after %s, allowed are %s", s, serving, mayServe)
	}
	if runs > mayRun {
		e.Errorf("kill -9 %s: a new pod ran after %s, allowed are %s", s, runs, mayRun)
	}
	e.delete(name, 5)
	e.awaitGone(name, usual)
	return serving, runs
}

// again says why the node is not whole yet: every service serves, and the killed
// one is another process.
func (e *env) again(ctx context.Context, s house.Service, old *nodev1.HelloResponse) error {
	all, err := e.n.hellos(ctx)
	if err != nil {
		return err
	}
	if all[s].GetPid() == old.GetPid() || all[s].GetEpoch() == old.GetEpoch() {
		return fmt.Errorf("%s is still process %d", s, old.GetPid())
	}
	if e.n.busOff {
		return nil
	}
	for name, h := range all {
		if name != house.Bus && !h.GetBusConnected() {
			return fmt.Errorf("%s is not on the bus", name)
		}
	}
	return nil
}

// killRuntime kills containerd: what runs goes on, and what is new runs once it
// is back.
func killRuntime(e *env) {
	names := e.five()
	before, began := e.state(names), time.Now()
	e.n.Runtime.Kill(e)
	e.n.Runtime.Restart(e)
	back := time.Now()
	e.create(e.pod("after"))
	e.awaitRunning("after", usual)
	e.Logf("%s: containerd is back %.2f s after kill -9, a new pod runs %.2f s later",
		e.n.kind, back.Sub(began).Seconds(), time.Since(back).Seconds())
	e.n.awaitServing(e.T, usual)
	e.same("kill -9 containerd", names, before, e.state(names))
	e.flips("kill -9 containerd", names, began)
	e.removeStatic()
}

// downAndUp stops every service and starts them again: the pods run on, and are
// adopted.
func downAndUp(e *env) {
	names := e.five()
	before, began := e.state(names), time.Now()
	e.n.Down(e)
	after, err := e.n.instances(e.Context(), e.ns)
	if err != nil || !maps.EqualFunc(before.instances, after, slices.Equal[[]instance]) {
		e.Errorf("down: containers were %v and are %v, %v", before.instances, after, err)
	}
	for _, name := range names {
		pod := e.n.seen.pod(e.ns, name)
		if code, _, err := ask(e.Context(), "GET", pod, "/healthz"); err != nil || code != 200 {
			e.Errorf("pod %s does not answer while the node is down: %d %v", name, code, err)
		}
	}
	// What is deleted meanwhile must be found out.
	gone := names[len(names)-1]
	names = names[:len(names)-1]
	e.delete(gone, 5)
	e.n.Up(e)
	e.awaitGone(gone, usual)
	e.create(e.pod("after"))
	e.awaitRunning("after", usual)
	delete(before.pods, gone)
	for key := range before.instances {
		if strings.HasPrefix(key, before.uids[gone]+"/") {
			delete(before.instances, key)
		}
	}
	e.same("down and up", names, before, e.state(names))
	e.flips("down and up", names, began)
	e.removeStatic()
}

// purge leaves nothing of the node.
func purge(e *env) {
	names := e.five()
	addresses := map[string]string{}
	for _, name := range names {
		addresses[name] = e.n.seen.pod(e.ns, name).Status.PodIP
	}
	stray(e)
	e.n.Purge(e)
	if left := e.n.Traces(); len(left) > 0 {
		e.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if all, err := e.n.instances(e.Context(), e.ns); err != nil || len(all) > 0 {
		e.Errorf("containers after the purge: %v, %v", all, err)
	}
	if left := harness.Mounts(e.n.Root); len(left) > 0 {
		e.Errorf("mounts after the purge: %v", left)
	}
	// Nobody is left to confirm the deletions.
	for _, name := range names {
		err := e.n.cp.Admin.CoreV1().Pods(e.ns).Delete(e.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if err != nil {
			e.Errorf("pod %s at %s: %v", name, addresses[name], err)
		}
	}
}

// stray leaves a process below a pod's cgroup that the runtime knows nothing of, as a
// command does that a probe began while its container ended.
func stray(e *env) {
	var pods []string
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, err := filepath.Glob(hierarchy + e.n.Runtime.CgroupRoot + "/kubepods/besteffort/pod*")
		if err != nil {
			e.Fatal(err)
		}
		pods = append(pods, found...)
	}
	if len(pods) == 0 {
		e.Fatal("no pod has a cgroup")
	}
	dir := filepath.Join(pods[0], "stray")
	if err := os.Mkdir(dir, 0o755); err != nil {
		e.Fatal(err)
	}
	cmd := exec.CommandContext(e.Context(), "sleep", "3600")
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = cmd.Wait() }) // killed
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		e.Fatal(err)
	}
}
