// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// TestDowntimes is TestLives with agents that are stopped, and started again after something has
// happened to each pod.
func TestDowntimes(t *testing.T) {
	d := downtimes{}
	compareLives(t, lives{make: (*maker).life, harm: d.pass, plain: withoutTiming}, "testdata/lives.txt", "testdata/downtimes.txt")
}

// downtimes are the names of the pods to which nothing was to happen on the first side, for they
// were being restarted.
type downtimes map[string]bool

// A happening is what happens to a pod while its agent is down.
type happening struct {
	// tell does it, to a pod that is there.
	tell func(t *testing.T, s *side, p *corev1.Pod) error
	// static does it to a static pod; nil where tell does.
	static func(t *testing.T, s *side, name string) error
	// gone: the pod is no more after it.
	gone bool
}

// happenings are by name.
var happenings = map[string]happening{
	"nothing":           {tell: func(*testing.T, *side, *corev1.Pod) error { return nil }},
	"an exit":           {tell: inRuntime(func(s *side, c *runtimeapi.ContainerStatus) { s.exit(c, "main-0", 3) })},
	"all exit":          {tell: inRuntime(func(s *side, c *runtimeapi.ContainerStatus) { s.rt.Exit(c.GetId(), 0) })},
	"out of memory":     {tell: inRuntime(func(s *side, c *runtimeapi.ContainerStatus) { s.rt.OOMKill(c.GetId()) })},
	"lost exits":        {tell: inRuntime(func(s *side, c *runtimeapi.ContainerStatus) { s.rt.LoseExit(c.GetId()) })},
	"containers lost":   {tell: inRuntime((*side).lose)},
	"sandbox dies":      {tell: sandbox(func(s *side, id string) { s.rt.KillSandbox(id) })},
	"sandbox lost":      {tell: sandbox(func(s *side, id string) { s.rt.Forget(id) })},
	"reboot":            {tell: reboot},
	"deleted":           {tell: deletion(nil), static: removal, gone: true},
	"deleted by force":  {tell: deletion(new(int64(0))), static: removal, gone: true},
	"replaced":          {tell: replacement, static: edit},
	"another image":     {tell: patched(types.StrategicMergePatchType, "", `{"spec":{"containers":[{"name":"main-0","image":"`+number+`"}]}}`), static: edit},
	"a deadline":        {tell: patched(types.StrategicMergePatchType, "", `{"spec":{"activeDeadlineSeconds":1}}`), static: mirrorDeleted},
	"other labels":      {tell: patched(types.MergePatchType, "", `{"metadata":{"labels":{"color":"green"}}}`)},
	"failed by another": {tell: patched(types.MergePatchType, "status", `{"status":{"phase":"Failed","reason":"NodeLost"}}`)},
	"not Ready":         {tell: patched(types.StrategicMergePatchType, "status", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)},
	"status emptied":    {tell: patched(types.MergePatchType, "status", `{"status":{"containerStatuses":null,"initContainerStatuses":null}}`)},
}

// happening is that of the pod with the maker's number.
func (m *maker) happening() string {
	return pick(newMaker(*seed+1<<36, m.number, ""),
		"nothing", "nothing", "an exit", "all exit", "out of memory", "lost exits", "containers lost", "sandbox dies", "sandbox lost", "reboot", "reboot",
		"deleted", "deleted", "deleted by force", "replaced", "another image", "a deadline", "other labels", "failed by another", "not Ready", "status emptied")
}

// pass stops the agent of a side, has happen what does to the pods with the numbers, and starts the
// agent again.
func (d downtimes) pass(t *testing.T, s *side, numbers []int) (gone []string) {
	t.Helper()
	if s.sextant != nil {
		s.sextant.Down(t)
	} else {
		s.reference.Kill(t)
	}
	pods, err := s.pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		name := fmt.Sprintf("life-%d", n)
		p, what := pods[name], newMaker(*seed, n, "").happening()
		if p == nil {
			continue // the API server did not take it
		}
		h := happenings[what]
		if s.sextant != nil {
			t.Logf("%s, static %v: %s", name, p.Name != name, what)
		}
		err := error(nil)
		if p.Name != name && h.static != nil {
			err = h.static(t, s, name)
		} else if s.reference != nil && restarting(p) && !h.gone {
			d[name] = true
		} else if !d[name] {
			err = h.tell(t, s, p)
		}
		if err != nil {
			t.Errorf("%s: %s: %s: %v", s.agent, name, what, err)
		}
		if h.gone {
			gone = append(gone, name)
		}
	}
	harness.Rest(t, 2*time.Second)
	if s.sextant != nil {
		s.sextant.Up(t)
	} else {
		s.reference.Up(t)
	}
	s.waitGone(t, gone)
	return gone
}

// waitGone waits until nothing is left of pods: not in the API server, and nothing that runs.
func (s *side) waitGone(t *testing.T, gone []string) {
	t.Helper()
	names := map[string]bool{}
	for _, name := range gone {
		names[name] = true
	}
	harness.Eventually(t, 2*time.Minute, "deleted pods to go", func(ctx context.Context) error {
		pods, err := s.pods(ctx)
		for name := range names {
			if pods[name] != nil {
				err = errors.Join(err, fmt.Errorf("%s: %s is there still", s.agent, name))
			}
		}
		for _, c := range s.rt.Containers() {
			if name := c.GetLabels()["io.kubernetes.pod.name"]; names[s.plain(name)] && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				err = errors.Join(err, fmt.Errorf("%s: container %s of %s runs still", s.agent, c.GetMetadata().GetName(), name))
			}
		}
		return err
	})
}

// exit has a container end if it has that name.
func (s *side) exit(c *runtimeapi.ContainerStatus, name string, code int32) {
	if c.GetMetadata().GetName() == name {
		s.rt.Exit(c.GetId(), code)
	}
}

// lose has the runtime forget a container that runs: one that has ended, of a pod that is not to run
// it again, a kubelet would.
func (s *side) lose(c *runtimeapi.ContainerStatus) {
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		s.rt.Forget(c.GetId())
	}
}

// inRuntime does something to each container of a pod.
func inRuntime(do func(s *side, c *runtimeapi.ContainerStatus)) func(*testing.T, *side, *corev1.Pod) error {
	return func(_ *testing.T, s *side, p *corev1.Pod) error {
		for _, c := range s.rt.Containers() {
			if c.GetLabels()["io.kubernetes.pod.uid"] == s.uid(p) {
				do(s, c)
			}
		}
		return nil
	}
}

// uid is that by which the runtime knows a pod.
func (s *side) uid(p *corev1.Pod) string {
	if hash := p.Annotations[corev1.MirrorPodAnnotationKey]; hash != "" {
		return hash
	}
	return string(p.UID)
}

// sandbox does something to the sandboxes of a pod.
func sandbox(do func(s *side, id string)) func(*testing.T, *side, *corev1.Pod) error {
	return func(_ *testing.T, s *side, p *corev1.Pod) error {
		for _, sb := range s.rt.Sandboxes() {
			if sb.GetLabels()["io.kubernetes.pod.uid"] == s.uid(p) {
				do(s, sb.GetId())
			}
		}
		return nil
	}
}

// reboot leaves of a pod what a runtime has of it after the machine was started again.
func reboot(t *testing.T, s *side, p *corev1.Pod) error {
	return errors.Join(
		inRuntime(func(s *side, c *runtimeapi.ContainerStatus) { s.rt.LoseExit(c.GetId()) })(t, s, p),
		sandbox(func(s *side, id string) { s.rt.KillSandbox(id) })(t, s, p))
}

func deletion(grace *int64) func(*testing.T, *side, *corev1.Pod) error {
	return func(t *testing.T, s *side, p *corev1.Pod) error {
		return s.cp.Admin.CoreV1().Pods(s.ns).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
	}
}

// replacement deletes a pod by force and makes another of its name.
func replacement(t *testing.T, s *side, p *corev1.Pod) error {
	err := deletion(new(int64(0)))(t, s, p)
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: *p.Spec.DeepCopy()}
	next.Spec.Containers[0].Image = number
	_, err1 := s.cp.Admin.CoreV1().Pods(s.ns).Create(t.Context(), next, metav1.CreateOptions{})
	return errors.Join(err, err1)
}

func patched(kind types.PatchType, subresource, patch string) func(*testing.T, *side, *corev1.Pod) error {
	return func(t *testing.T, s *side, p *corev1.Pod) error {
		var sub []string
		if subresource != "" {
			sub = append(sub, subresource)
		}
		_, err := s.cp.Admin.CoreV1().Pods(s.ns).Patch(t.Context(), p.Name, kind, []byte(patch), metav1.PatchOptions{}, sub...)
		return err
	}
}

// removal takes the manifest of a static pod away.
func removal(t *testing.T, s *side, name string) error {
	s.place.RemoveManifest(t, name+".yaml")
	s.static = without(s.static, name)
	return nil
}

// edit gives a static pod another image.
func edit(t *testing.T, s *side, name string) error {
	n := 0
	if _, err := fmt.Sscanf(name, "life-%d", &n); err != nil {
		return err
	}
	p, _ := newMaker(*seed, n, "").life(name)
	p.Namespace, p.Spec.Containers[0].Image = s.ns, number
	s.place.AddManifest(t, name+".yaml", p)
	return nil
}

// mirrorDeleted deletes the mirror of a static pod.
func mirrorDeleted(t *testing.T, s *side, name string) error {
	return s.cp.Admin.CoreV1().Pods(s.ns).Delete(t.Context(), name+"-"+s.node, metav1.DeleteOptions{})
}

func without(names []string, name string) (left []string) {
	for _, n := range names {
		if n != name {
			left = append(left, n)
		}
	}
	return left
}
