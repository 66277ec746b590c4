// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/fakecri"
)

// attempt finds the number of an instance in the name of its log.
var attempt = regexp.MustCompile(`/\d+\.log\b`)

// many restarts are those of a container that fails for ever: how many there are depends on when
// one looks.
const many = 6

// calmFor is longer than the pause of a kubelet after an error, of 10 to 15 seconds.
const calmFor = 17 * time.Second

// TestLives gives both agents the same random pods, whose containers end, fail, are probed, killed
// and restarted; then other images for some, and then their ends. What becomes of them is the
// same, but for what testdata/lives.txt lists.
func TestLives(t *testing.T) {
	compareLives(t, lives{make: (*maker).life}, "testdata/lives.txt")
}

// lives are what such a test is about.
type lives struct {
	// make makes a pod, and the faults that its runtime is to have.
	make func(m *maker, name string) (*corev1.Pod, []fault)
	// configure changes the configuration of both agents; nil for nothing.
	configure func(*kubeletv1beta1.KubeletConfiguration)
	// calm is longer than an agent changes nothing of a pod before it tries again; calmFor when zero.
	calm time.Duration
	// plain takes from what became of a pod what is chance; nil for nothing.
	plain func(line string) string
	// harm is done to each side before the end, with the pods of the numbers; nil for none. It returns
	// the names of those that are no more after it.
	harm func(t *testing.T, s *side, numbers []int) (gone []string)
	// end ends some pods of a side, those with the numbers among them; nil for none. The others
	// are deleted after it.
	end func(t *testing.T, s *side, numbers []int)
	// beside is done to each side as long as it has pods, until stop; nil for nothing.
	beside func(*testing.T, *side) (stop func())
}

// clean is a story without what is chance.
func (l lives) clean(y *story) *story {
	if l.plain != nil {
		for _, list := range [][]string{y.outcome, y.events, y.calls} {
			for i := range list {
				list[i] = l.plain(list[i])
			}
		}
	}
	return y
}

// compareLives is such a test. What may differ is in files.
func compareLives(t *testing.T, l lives, files ...string) {
	t.Helper()
	table := readTable(t, files...)
	cp := harness.StartControlPlane(t)
	sides := startSides(t, cp, func(c *kubeletv1beta1.KubeletConfiguration) {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 3 * time.Second}
		if l.configure != nil {
			l.configure(c)
		}
	})
	j := &judge{table: table, told: map[string][]string{}}
	numbers := wanted()
	refused, changed := 0, 0
	for part := range slices.Chunk(numbers, cmp.Or(*wave, 30)) {
		var names []string
		var stops []func()
		for _, s := range sides {
			s.watch(t)
			if l.beside != nil {
				stops = append(stops, l.beside(t, s))
			}
		}
		for _, n := range part {
			name := fmt.Sprintf("life-%d", n)
			m := newMaker(*seed, n, "")
			p, faults := l.make(m, name)
			static := m.one(5) && p.Spec.ActiveDeadlineSeconds == nil && len(p.Finalizers) == 0
			if *only >= 0 {
				text, err := yaml.Marshal(p)
				t.Logf("%s%v", text, err)
			}
			if len(faults) > 0 {
				t.Logf("%s, static %v: %+v", name, static, faults)
			}
			for _, s := range sides {
				s.fail(t, name, static, faults)
			}
			if static {
				for _, s := range sides {
					s.addStatic(t, p)
				}
			} else if err := create(t, sides, p); err != nil {
				if *only >= 0 {
					t.Log(err)
				}
				refused++
				continue
			}
			names = append(names, name)
		}
		compared := func(when string, names []string) {
			for _, s := range sides {
				s.calm(t, names, cmp.Or(l.calm, calmFor))
			}
			for _, name := range names {
				compareStories(j, when, name, l.clean(sides[0].story(t, name)), l.clean(sides[1].story(t, name)))
			}
		}
		compared("at first", names)
		changed += change(t, sides, part)
		compared("with other images", names)
		if l.harm != nil {
			var gone []string
			for _, s := range sides {
				s.rt.ResetCalls()
				gone = l.harm(t, s, part)
			}
			compared("after the harm", slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(gone, name) }))
			for _, name := range gone {
				compareStories(j, "after the harm", name, l.clean(sides[0].ending(t, name)), l.clean(sides[1].ending(t, name)))
			}
		}
		for _, s := range sides {
			s.rt.ResetCalls()
			if l.end != nil {
				l.end(t, s, part)
			}
			s.finish(t)
		}
		for _, stop := range stops {
			stop()
		}
		for _, name := range names {
			compareStories(j, "at its end", name, l.clean(sides[0].ending(t, name)), l.clean(sides[1].ending(t, name)))
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d pods, of which the API server refused %d; %d got other images; seed %d", len(numbers), refused, changed, *seed)
	if *only < 0 && (refused > len(numbers)/2 || changed == 0) {
		t.Error("too few pods to say anything")
	}
	j.report(t, strings.Join(files, " and "))
}

// seen keeps the last that was seen of each pod of a side.
type seen struct {
	mu   sync.Mutex
	last map[string]*corev1.Pod
}

// watch begins to keep what is last seen of each pod, until the test ends.
func (s *side) watch(t *testing.T) {
	t.Helper()
	if s.seen != nil {
		return
	}
	s.seen = &seen{last: map[string]*corev1.Pod{}}
	w, err := s.cp.Admin.CoreV1().Pods(s.ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Error {
				s.seen.mu.Lock()
				s.seen.last[s.plain(p.Name)] = p
				s.seen.mu.Unlock()
			}
		}
	}()
}

// plain is the name of a pod without what a static one has of its node.
func (s *side) plain(name string) string { return strings.TrimSuffix(name, "-"+s.node) }

// addStatic gives a side a static pod.
func (s *side) addStatic(t *testing.T, p *corev1.Pod) {
	t.Helper()
	own := p.DeepCopy()
	own.Namespace = s.ns
	s.place.AddManifest(t, p.Name+".yaml", own)
	s.static = append(s.static, p.Name)
}

// pods are those of a side, by their names without the node's.
func (s *side) pods(ctx context.Context) (map[string]*corev1.Pod, error) {
	list, err := s.cp.Admin.CoreV1().Pods(s.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]*corev1.Pod{}
	for i := range list.Items {
		all[s.plain(list.Items[i].Name)] = &list.Items[i]
	}
	return all, nil
}

// statuses are those of all containers of a pod.
func statuses(p *corev1.Pod) []*corev1.ContainerStatus {
	var all []*corev1.ContainerStatus
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// loops reports whether a container is restarted for ever.
func loops(c *corev1.ContainerStatus) bool { return c.RestartCount >= many }

// restarting reports whether some container of a pod is restarted for ever.
func restarting(p *corev1.Pod) bool { return slices.ContainsFunc(statuses(p), loops) }

// restartsAll reports whether a rule of a pod restarts all its containers together.
func restartsAll(p *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// calm waits until nothing has changed for long enough but what is restarted for ever.
func (s *side) calm(t *testing.T, names []string, calmFor time.Duration) {
	t.Helper()
	was, since := map[string]string{}, time.Now()
	harness.Eventually(t, 5*time.Minute, "the pods to come to rest", func(ctx context.Context) error {
		pods, err := s.pods(ctx)
		if err != nil {
			return err
		}
		moved := ""
		for _, name := range names {
			p := pods[name]
			if p == nil {
				return fmt.Errorf("%s: %s is not there", s.agent, name)
			}
			now := fmt.Sprint(p.Generation)
			if !restarting(p) {
				now += string(p.Status.Phase)
			}
			for _, c := range statuses(p) {
				if !loops(c) {
					now += fmt.Sprint(" ", c.Name, c.RestartCount, c.State.Running != nil, c.State.Terminated != nil, c.Ready)
				}
			}
			if now != was[name] {
				moved += fmt.Sprintf(" %s from %q to %q", name, was[name], now)
				was[name] = now
			}
		}
		if moved != "" {
			since = time.Now()
			return fmt.Errorf("%s: these have just changed:%s", s.agent, moved)
		}
		if left := calmFor - time.Since(since); left > 0 {
			return fmt.Errorf("%s: %s are left of the time without a change", s.agent, left)
		}
		return nil
	})
}

// story is what became of a pod.
type story struct {
	outcome, events, calls []string
	said                   int // how often something was said of it
}

// mostSaid is what a recorder of events tells of one object before it tells one in five minutes
// (client-go's correlator).
const mostSaid = 25

// crowded reports whether events of the pod may not have been told.
func (y *story) crowded() bool { return y.said >= mostSaid-1 }

// compareStories compares what became of a pod on each side.
func compareStories(j *judge, when, name string, reference, own *story) {
	if reference.crowded() || own.crowded() { // which of the events are told is chance
		reference.events, own.events = nil, nil
	}
	j.note(name, reference.lines(when), own.lines(when))
}

// lines are a story's, each once and with when before it.
func (y *story) lines(when string) []string {
	all := slices.Concat(y.outcome, y.events, y.calls)
	slices.Sort(all)
	all = slices.Compact(all)
	for i := range all {
		all[i] = when + ": " + all[i]
	}
	return all
}

// story tells what became of a pod of a side.
func (s *side) story(t *testing.T, name string) *story {
	t.Helper()
	y := &story{}
	pods, err := s.pods(t.Context())
	if err != nil || pods[name] == nil {
		t.Errorf("%s: %s: %v", s.agent, name, err)
		return y
	}
	p := pods[name]
	y.outcome = s.outcome(t, p)
	y.events, y.said = s.told(t, p)
	looping := restarting(p)
	attempts := map[string]int{}
	for _, call := range s.rt.Calls(fakecri.Match{}) {
		if call.Pod != p.Name {
			continue
		}
		line := ""
		switch r := call.Request.(type) {
		case *runtimeapi.CreateContainerRequest:
			line = "is made"
		case *runtimeapi.StartContainerRequest:
			line = "is started"
		case *runtimeapi.StopContainerRequest:
			line = fmt.Sprintf("is stopped within %d s", r.GetTimeout())
		case *runtimeapi.ExecSyncRequest:
			y.calls = append(y.calls, fmt.Sprintf("container %s runs %q within %d s", call.Name, r.GetCmd(), r.GetTimeout()))
		case *runtimeapi.RunPodSandboxRequest:
			y.calls = append(y.calls, fmt.Sprintf("sandbox is made, attempt %d", r.GetConfig().GetMetadata().GetAttempt()))
		}
		if line == "" {
			continue
		}
		if !looping {
			attempts[call.Name]++
			line = fmt.Sprintf("%s, request %d for it", line, attempts[call.Name])
		}
		y.calls = append(y.calls, fmt.Sprintf("container %s %s", call.Name, line))
	}
	return y
}

// told are the events of a pod, and how often something was said in them.
func (s *side) told(t *testing.T, p *corev1.Pod) (all []string, said int) {
	t.Helper()
	events, err := s.cp.Admin.CoreV1().Events(s.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.Name})
	if err != nil {
		t.Error(err)
		return nil, 0
	}
	f := s.flattener(p)
	for _, e := range events.Items {
		said += int(e.Count)
		all = append(all, fmt.Sprintf("event %s %s %s: %s", e.Type, e.Reason, e.InvolvedObject.FieldPath, took.ReplaceAllString(f.Names.Text(e.Message), "in DURATION (DURATION ")))
	}
	return all, said
}

// outcome is what the API server has of a pod, but for what depends on when one looks.
func (s *side) outcome(t *testing.T, p *corev1.Pod) (all []string) {
	t.Helper()
	p = p.DeepCopy()
	looping, together := restarting(p), restartsAll(p)
	if looping && together {
		p.Status.Phase = ""
	}
	for _, c := range statuses(p) {
		c.ContainerID = ""
		if w := c.State.Waiting; w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") {
			w.Reason, w.Message = "no image", backOff.ReplaceAllString(w.Message, "")
		}
		if loops(c) {
			end := c.LastTerminationState.Terminated
			if together {
				end = nil // its own, or that of all of them
			}
			*c = corev1.ContainerStatus{Name: c.Name, Image: c.Image, RestartCount: many}
			if end != nil {
				c.State.Waiting = &corev1.ContainerStateWaiting{Reason: fmt.Sprintf("loops: %d %s", end.ExitCode, end.Reason), Message: end.Message}
			}
		}
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil {
				end.ContainerID = ""
			}
		}
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		c.ObservedGeneration = 0
		if looping {
			c.Status, c.Reason, c.Message = "", "", ""
		}
	}
	text, err := json.Marshal(p.Status)
	if err != nil {
		t.Error(err)
		return nil
	}
	facts, err := s.flattener(p).Facts(text)
	if err != nil {
		t.Error(err)
	}
	for _, fact := range facts {
		all = append(all, "status."+attempt.ReplaceAllString(fact, "/N.log"))
	}
	return all
}

// change gives some pods of those with the numbers another image.
func change(t *testing.T, sides []*side, numbers []int) (changed int) {
	t.Helper()
	for _, n := range numbers {
		if !newMaker(*seed+1<<34, n, "").one(3) {
			continue
		}
		name := fmt.Sprintf("life-%d", n)
		patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main-0","image":%q}]}}`, user)
		done := false
		for _, s := range sides {
			_, err := s.cp.Admin.CoreV1().Pods(s.ns).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
			done = done || err == nil
		}
		if done {
			changed++
		}
	}
	return changed
}

// finish ends all pods of a side.
func (s *side) finish(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, name := range s.static {
		s.place.RemoveManifest(t, name+".yaml")
	}
	s.static = nil
	pods, err := s.pods(ctx)
	for name, p := range pods {
		if len(p.Finalizers) > 0 {
			err = errors.Join(err, s.letGo(ctx, p.Name))
		}
		if p.Annotations[corev1.MirrorPodAnnotationKey] == "" {
			err = errors.Join(err, s.cp.Admin.CoreV1().Pods(s.ns).Delete(ctx, name, metav1.DeleteOptions{}))
		}
	}
	err = errors.Join(err, harness.Within(ctx, 3*time.Minute, func(ctx context.Context) error {
		pods, err := s.pods(ctx)
		if err != nil {
			return err
		}
		for name := range pods {
			return fmt.Errorf("%s: %d pods are there still: %s …", s.agent, len(pods), name)
		}
		return nil
	}))
	if err != nil {
		t.Error(err)
	}
	harness.Rest(t, time.Second) // what the watch has to tell
}

// ending is what was last seen of a pod, and what was done to its containers at the end.
func (s *side) ending(t *testing.T, name string) *story {
	t.Helper()
	s.seen.mu.Lock()
	p := s.seen.last[name]
	s.seen.mu.Unlock()
	y := &story{}
	if p == nil {
		t.Errorf("%s: %s was never seen", s.agent, name)
		return y
	}
	y.outcome = s.outcome(t, p)
	y.events, y.said = s.told(t, p)
	for _, call := range s.rt.Calls(fakecri.Match{}) {
		if call.Pod != p.Name || restarting(p) {
			continue
		}
		switch r := call.Request.(type) {
		case *runtimeapi.StopContainerRequest:
			y.calls = append(y.calls, fmt.Sprintf("container %s is stopped within %d s", call.Name, r.GetTimeout()))
		case *runtimeapi.ExecSyncRequest:
			y.calls = append(y.calls, fmt.Sprintf("container %s runs %q within %d s", call.Name, r.GetCmd(), r.GetTimeout()))
		}
	}
	return y
}
