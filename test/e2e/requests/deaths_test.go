// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// TestDeaths is TestLives with pods that get stuck on their way to Ready or run, and then are
// deleted, again with less grace, by force, with a finalizer or by eviction, or whose deadline is over.
func TestDeaths(t *testing.T) {
	compareLives(t, lives{make: (*maker).mortal, end: die}, "testdata/lives.txt", "testdata/deaths.txt")
}

// finalizer keeps an object of a pod that is gone.
const finalizer = "sextant.local/held"

// death is how a pod ends.
type death struct {
	how   string   // deleted, evicted or deadline
	grace []*int64 // of one deletion or eviction after the other; nil for the pod's own
	held  bool     // with a finalizer, which goes when nothing else is missing
}

// death is that of the pod with the maker's number.
func (m *maker) death() death {
	d := newMaker(*seed+1<<35, m.number, "")
	return pick(d,
		death{how: "deleted", grace: []*int64{nil}},
		death{how: "deleted", grace: []*int64{nil}, held: true},
		death{how: "deleted", grace: []*int64{new(int64(0))}},
		death{how: "deleted", grace: []*int64{new(int64(1))}},
		death{how: "deleted", grace: []*int64{new(int64(30)), new(int64(1))}},
		death{how: "deleted", grace: []*int64{new(int64(30)), new(int64(1))}, held: true},
		death{how: "deleted", grace: []*int64{new(int64(30)), new(int64(0))}},
		death{how: "evicted", grace: []*int64{nil}},
		death{how: "evicted", grace: []*int64{new(int64(1))}, held: true},
		death{how: "deadline"},
		death{how: "deadline"},
	)
}

// mortal is a random pod that runs or is stuck on its way to that.
func (m *maker) mortal(name string) (*corev1.Pod, []fault) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s := &p.Spec
	s.RestartPolicy = pick(m, corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	s.TerminationGracePeriodSeconds = new(int64(m.IntN(4) + 1))
	s.AutomountServiceAccountToken = new(false)
	s.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if m.one(2) {
		c := living("init-0", m.told())
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		m.farewell(&c)
		s.InitContainers = append(s.InitContainers, c)
	}
	for i := range m.IntN(3) + 1 {
		c := living(fmt.Sprintf("main-%d", i), m.told())
		if i > 0 && m.one(3) && s.RestartPolicy != corev1.RestartPolicyAlways {
			c = living(c.Name, pick(m, "exit 0", "sleep 0.3; exit 0"))
		}
		m.farewell(&c)
		s.Containers = append(s.Containers, c)
	}
	if d := m.death(); d.held {
		p.Finalizers = []string{finalizer}
	}
	c := &s.Containers[len(s.Containers)-1]
	switch m.IntN(7) { // not a hook or a pull that hangs: a kubelet ends no pod before they do
	case 0:
		s.InitContainers = append(s.InitContainers, living("init-1", m.told()))
	case 1:
		c.Image = nowhere
	case 2:
		c.Command = living(c.Name, serves).Command
		c.StartupProbe = &corev1.Probe{ProbeHandler: shell("false"), PeriodSeconds: 1, FailureThreshold: 1000}
	case 3:
		s.Volumes = append(s.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/no/such/folder", Type: new(corev1.HostPathDirectory)},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "host", MountPath: "/host"})
	}
	return p, nil
}

// farewell may give a container a hook for its end.
func (m *maker) farewell(c *corev1.Container) {
	if !m.one(3) {
		return
	}
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: shell(pick(m, "true", "false", "sleep 0.5", "sleep 1000")).Exec}}
	if m.one(4) {
		c.Lifecycle.PreStop = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
	}
}

// die ends the pods of a side with the numbers but for static ones, each its own way, and waits
// until nothing of them runs.
func die(t *testing.T, s *side, numbers []int) {
	t.Helper()
	pods := s.cp.Admin.CoreV1().Pods(s.ns)
	all, err := s.pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deaths := map[string]death{}
	for _, n := range numbers {
		name := fmt.Sprintf("life-%d", n)
		if p := all[name]; p != nil && p.Name == name {
			deaths[name] = newMaker(*seed, n, "").death()
		}
	}
	left := true
	for turn := 0; left; turn++ {
		left = false
		for name, d := range deaths {
			var err error
			switch {
			case d.how == "deadline" && turn == 0:
				_, err = pods.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{})
			case turn >= len(d.grace):
				continue
			case d.how == "evicted":
				err = pods.EvictV1(t.Context(), &policyv1.Eviction{
					ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: d.grace[turn]},
				})
			default:
				err = pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: d.grace[turn]})
			}
			if err != nil && (turn == 0 || !apierrors.IsNotFound(err)) {
				t.Errorf("%s: %s: %v", s.agent, name, err)
			}
			left = left || turn+1 < len(d.grace)
		}
		harness.Rest(t, 2*time.Second)
	}
	if err := harness.Within(t.Context(), time.Minute, func(ctx context.Context) error { return s.dead(ctx, deaths) }); err != nil {
		t.Error(err)
	}
	harness.Rest(t, time.Second) // what the watch has to tell
}

// letGo takes the finalizers of a pod away.
func (s *side) letGo(ctx context.Context, name string) error {
	_, err := s.cp.Admin.CoreV1().Pods(s.ns).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	return err
}

// dead is what is missing to the deaths of pods by name; it takes finalizers away.
func (s *side) dead(ctx context.Context, deaths map[string]death) error {
	all, err := s.pods(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(deaths)) {
		d, p := deaths[name], all[name]
		switch {
		case d.held && p != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0:
			err = errors.Join(err, s.letGo(ctx, name), fmt.Errorf("%s: the finalizer of %s goes", s.agent, name))
		case d.how == "deadline" && (p == nil || p.Status.Phase != corev1.PodFailed):
			err = errors.Join(err, fmt.Errorf("%s: %s has not failed", s.agent, name))
		case d.how != "deadline" && p != nil:
			err = errors.Join(err, fmt.Errorf("%s: %s (%+v) is there still: phase %s, deleted at %s with grace %v", s.agent, name, d, p.Status.Phase, p.DeletionTimestamp, ptr.Deref(p.DeletionGracePeriodSeconds, -1)))
		}
	}
	for _, c := range s.rt.Containers() {
		if name := c.GetLabels()["io.kubernetes.pod.name"]; deaths[name].how != "" && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			err = errors.Join(err, fmt.Errorf("%s: container %s of %s runs still", s.agent, c.GetMetadata().GetName(), name))
		}
	}
	return err
}
