package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// volumeKills is how often volume and podworker are killed; make volume-kills
// does it 200 times.
var volumeKills = flag.Int("volume-kills", 20, "kill -9s of volume and podworker under pods with volumes")

// orphanLimit is how long anything of a pod that is gone may be left.
const orphanLimit = 2 * time.Minute

// neverLoseNeverLeak kills volume and podworker at random moments, together and
// alone, while pods with every kind of volume run, others come and go, and the
// API server is away for a third of the time. No volume of a pod that runs is
// unmounted or loses its contents; of those that went nothing is left.
func neverLoseNeverLeak(e *env) {
	api := e.n.cp.Admin.CoreV1()
	_, err := api.ConfigMaps(e.ns).Create(e.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"greeting": "hello", "other": "x"}}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	_, err = api.Secrets(e.ns).Create(e.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"password": []byte("swordfish")}}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	names := []string{"lives-1", "lives-2", "lives-3"}
	for _, name := range names {
		e.create(e.podWithParts(name))
	}
	kept := map[string]string{} // contents by path
	for _, name := range names {
		pod := e.awaitRunning(name, usual)
		for _, v := range []string{"scratch", "memory"} {
			path := filepath.Join(e.volumesOf(pod), "kubernetes.io~empty-dir", v, "kept")
			writeFile(e, path, name+" "+v)
			kept[path] = name + " " + v
		}
		kept[filepath.Join(e.volumesOf(pod), "kubernetes.io~configmap/config/greeting")] = "hello"
		kept[filepath.Join(e.volumesOf(pod), "kubernetes.io~secret/secret/password")] = "swordfish"
		kept[filepath.Join(e.volumesOf(pod), "kubernetes.io~downward-api/info/name")] = name
		kept[filepath.Join(e.volumesOf(pod), "kubernetes.io~projected/all/settings/greeting")] = "hello"
	}
	before, mounts, began := e.state(names), e.mountsOf(names), time.Now()
	if len(mounts) < 4*len(names) {
		e.Fatalf("the pods have only %d mounts: %v", len(mounts), mounts)
	}
	churn, away := 0, false
	for i := range *volumeKills {
		switch i % 9 {
		case 3:
			e.n.cp.Stop(e)
			away = true
		case 6:
			e.n.cp.Resume(e)
			away = false
		}
		if !away {
			e.create(e.podWithParts(fmt.Sprintf("comes-%d", churn)))
			if churn++; churn > 2 {
				e.delete(fmt.Sprintf("comes-%d", churn-3), 1)
			}
		}
		time.Sleep(rand.N(700 * time.Millisecond)) // the random moment
		victims := [][]house.Service{{house.Volume}, {house.PodWorker}, {house.Volume, house.PodWorker}}[rand.N(3)]
		for _, s := range victims {
			e.kill9(s)
		}
		e.mountsStay(fmt.Sprintf("after kill %d, of %v", i, victims), mounts)
	}
	if away {
		e.n.cp.Resume(e)
	}
	e.n.awaitServing(e.T, usual)
	for i := max(0, churn-3); i < churn; i++ {
		e.delete(fmt.Sprintf("comes-%d", i), 1)
	}
	for i := range churn {
		e.awaitGone(fmt.Sprintf("comes-%d", i), 2*usual)
	}
	for path, want := range kept {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			e.Errorf("%s holds %q, %v, want %q", path, got, err, want)
		}
	}
	e.mountsStay("in the end", mounts)
	e.same("kill -9 at random", names, before, e.state(names))
	e.flips("kill -9 at random", names, began)
	harness.Eventually(e, orphanLimit, "nothing to be left of the pods that went", e.orphans)
	e.Logf("%s: %d kills, %d pods came and went: nothing lost, nothing left", e.n.kind, *volumeKills, churn)
	for _, name := range names {
		e.delete(name, 1)
	}
	for _, name := range names {
		e.awaitGone(name, usual)
	}
}

// podWithParts has every kind of volume, and a part of one.
func (e *env) podWithParts(name string) *corev1.Pod {
	pod := e.podWithVolumes()
	pod.Name = name
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/part", SubPath: "part/of/it"})
	return pod
}

func (e *env) volumesOf(pod *corev1.Pod) string {
	return filepath.Join(e.n.Root, "pods", string(pod.UID), "volumes")
}

// mountsOf are the mounts of the pods' volumes, by mount point, with which file
// system it is.
func (e *env) mountsOf(names []string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		for point, id := range harness.MountIDs(string(e.n.seen.pod(e.ns, name).UID)) {
			all[point] = id
		}
	}
	return all
}

func (e *env) mountsStay(when string, mounts map[string]string) {
	e.Helper()
	now := harness.MountIDs(e.n.Root)
	for point, id := range mounts {
		if now[point] != id {
			e.Errorf("%s: %s was mount %s and is %q", when, point, id, now[point])
		}
	}
}

// kill9 kills a service if it runs.
func (e *env) kill9(s house.Service) {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.n.Run, string(s)+".pid"))
	if err != nil {
		e.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(text) + " 0")[0]) // beside it is when it began
	if err != nil {
		e.Fatal(err)
	}
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || !strings.Contains(string(cmdline), "run\x00"+string(s)) {
		return // killed a moment ago, and not yet back
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		e.Fatal(err)
	}
}

// orphans tells what is left of pods that the node does not have any more.
func (e *env) orphans(ctx context.Context) error {
	pods, err := e.n.Pods(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, pod := range pods {
		known[pod.UID] = true
		if strings.HasPrefix(pod.Name, "comes-") && pod.Namespace == e.ns {
			return fmt.Errorf("the node still has pod %s", pod.Name)
		}
	}
	entries, err := os.ReadDir(filepath.Join(e.n.Root, "pods"))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !known[entry.Name()] {
			return fmt.Errorf("the folder of pod %s is left, mounts %v", entry.Name(), harness.Mounts(entry.Name()))
		}
	}
	return nil
}
