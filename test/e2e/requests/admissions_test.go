// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/test/e2e/compare"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// What the nodes of TestAdmissions have for pods.
const (
	nodeCPU  = 1000 // thousandths of a core
	nodeMiB  = 500
	nodePods = 12
)

// TestAdmissions gives both agents, on nodes that have little, the same random pods one after the
// other, with demands that cannot all be met: some are refused, some take the place of others, some
// are deleted, some ask for other resources while they run. What becomes of all of them after each
// step is the same, but for what testdata/admissions.txt lists.
func TestAdmissions(t *testing.T) {
	table := readTable(t, "testdata/admissions.txt")
	cp := harness.StartControlPlane(t)
	furnishCluster(t, cp)
	memory := int(harness.Memory(t) >> 20)
	sides := startSides(t, cp, func(c *kubeletv1beta1.KubeletConfiguration) {
		c.MaxPods = nodePods
		c.SystemReserved = map[string]string{"cpu": fmt.Sprintf("%dm", runtime.NumCPU()*1000-nodeCPU), "memory": fmt.Sprintf("%dMi", memory-nodeMiB)}
		c.EvictionHard = map[string]string{"memory.available": "0%"}
		c.AllowedUnsafeSysctls = nil
	})
	for _, s := range sides {
		s.mark(t)
		s.watch(t)
	}
	j := &judge{table: table, told: map[string][]string{}}
	names, done := []string{}, map[string]int{}
	for n := range *count {
		m := newMaker(*seed, n, "")
		var what string
		switch turn := m.IntN(9); {
		case len(names) > 5 && turn < 3:
			i := m.IntN(len(names))
			what = "end of " + names[i]
			for _, s := range sides {
				s.endOne(t, names[i])
			}
			names = slices.Delete(names, i, i+1)
		case len(names) > 5 && turn < 5:
			running := sides[0].running(t, names)
			if len(running) == 0 {
				continue
			}
			name := pick(m, running...)
			what = "resize of " + name
			if !ask(t, sides, newMaker(*seed+1<<37, n, ""), name, func(m *maker, c *corev1.Container) { m.scale(c, 0.5, 1, 2, 5) }) {
				continue
			}
		default:
			name := fmt.Sprintf("pod-%d", n)
			p, static := m.demanding(name), m.one(6)
			if !admitted(t, sides, p, static) {
				continue
			}
			names = append(names, name)
			what = "creation of " + name
		}
		done[strings.Fields(what)[0]]++
		when := fmt.Sprintf("step %d, %s", n, what)
		for _, s := range sides {
			s.waitDecided(t, strings.HasPrefix(what, "creation"))
		}
		for _, name := range j.compareAll(t, when, names, sides) {
			for _, s := range sides {
				s.endOne(t, name)
			}
			names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		}
		if unlisted := j.table.Judge(j.all).Unlisted; len(unlisted) > 0 || t.Failed() {
			t.Logf("%s: the agents differ", when)
			for _, s := range sides {
				s.tellAll(t)
			}
			break // all that follows depends on it
		}
	}
	for _, s := range sides {
		s.finish(t)
	}
	t.Logf("%v; seed %d", done, *seed)
	if done["creation"] == 0 || done["end"] == 0 || done["resize"] == 0 {
		t.Error("too little was done to say anything")
	}
	j.report(t, "testdata/admissions.txt")
}

// running are those of the names that run and are no static pods.
func (s *side) running(t *testing.T, names []string) (all []string) {
	t.Helper()
	pods, err := s.pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if p := pods[name]; p != nil && p.Name == name && p.Status.Phase == corev1.PodRunning {
			all = append(all, name)
		}
	}
	return all
}

// mark gives a node the labels and the taint that demands are about.
func (s *side) mark(t *testing.T) {
	t.Helper()
	patch := `{"metadata":{"labels":{"zone":"a","cores":"4"}},"spec":{"taints":[{"key":"dedicated","value":"x","effect":"NoExecute"}]}}`
	if _, err := s.cp.Admin.CoreV1().Nodes().Patch(t.Context(), s.node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Rest(t, 2*time.Second) // the agents watch their nodes
}

// demand gives a container random requests and limits.
func (m *maker) demand(c *corev1.Container) {
	c.Resources.Requests, c.Resources.Limits = corev1.ResourceList{}, nil
	if !m.one(3) {
		c.Resources.Requests[corev1.ResourceCPU] = resource.MustParse(pick(m, "10m", "100m", "150m", "300m", "600m", "1100m"))
	}
	if m.one(2) {
		c.Resources.Requests[corev1.ResourceMemory] = resource.MustParse(pick(m, "1Mi", "50Mi", "120M", "300Mi", "600Mi"))
	}
	switch m.IntN(3) {
	case 0:
		c.Resources.Limits = c.Resources.Requests.DeepCopy()
	case 1:
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1200m"), corev1.ResourceMemory: resource.MustParse("700Mi")}
	}
}

// rare may give a container demands that no node can meet.
func (m *maker) rare(c *corev1.Container) {
	if m.one(12) {
		amount := resource.MustParse("1")
		c.Resources.Requests["example.com/thing"] = amount
		if c.Resources.Limits == nil {
			c.Resources.Limits = corev1.ResourceList{}
		}
		c.Resources.Limits["example.com/thing"] = amount
	}
	if m.one(12) {
		c.Resources.Requests[corev1.ResourceEphemeralStorage] = resource.MustParse(pick(m, "1Mi", "100Ti"))
	}
}

// demanding is a random pod with demands of its node.
func (m *maker) demanding(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s := &p.Spec
	s.RestartPolicy = pick(m, corev1.RestartPolicyAlways, corev1.RestartPolicyNever)
	s.TerminationGracePeriodSeconds = new(int64(1))
	s.AutomountServiceAccountToken = new(false)
	s.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	s.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	if m.one(4) {
		c := living("init-0", "exit 0")
		m.demand(&c)
		m.rare(&c)
		if m.one(2) {
			c.Command, c.RestartPolicy = living(c.Name, serves).Command, new(corev1.ContainerRestartPolicyAlways)
		}
		s.InitContainers = append(s.InitContainers, c)
	}
	for i := range m.IntN(2) + 1 {
		script := serves
		if s.RestartPolicy == corev1.RestartPolicyNever && m.one(4) {
			script = "exit 0"
		}
		c := living(fmt.Sprintf("main-%d", i), script)
		m.demand(&c)
		m.rare(&c)
		if m.one(6) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: pick(m, int32(30001), 30002), Protocol: pick(m, corev1.ProtocolTCP, corev1.ProtocolUDP), HostIP: pick(m, "", "127.0.0.1", "127.0.0.2")}}
		}
		s.Containers = append(s.Containers, c)
	}
	if m.one(6) {
		s.PriorityClassName = pick(m, "system-node-critical", "system-cluster-critical", "high")
	}
	if m.one(10) {
		s.RuntimeClassName = new("heavy")
	}
	switch m.IntN(14) {
	case 0:
		s.NodeSelector = map[string]string{"zone": pick(m, "a", "b")}
	case 1:
		s.NodeSelector = map[string]string{corev1.LabelOSStable: pick(m, "linux", "windows")}
	case 2:
		s.OS = &corev1.PodOS{Name: pick(m, corev1.Linux, corev1.Windows)}
		if s.OS.Name == corev1.Windows {
			s.SecurityContext = nil
		}
	case 3:
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{
				pick(m, corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}},
					corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{pick(m, "3", "4")}},
					corev1.NodeSelectorRequirement{Key: "none", Operator: pick(m, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist)}),
			},
		}}}}}
	case 4:
		s.Tolerations = pick(m, nil, []corev1.Toleration{{Key: "dedicated", Value: "y"}}, []corev1.Toleration{{Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoExecute}})
	case 5:
		s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: pick(m, "net.core.somaxconn", "kernel.shm_rmid_forced", "kernel.msgmax"), Value: "1"}}}
	case 6:
		s.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
	case 7:
		s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(pick(m, "1200m", "400m"))}}
	}
	return p
}

// admitted gives all sides a pod; false where the API server refuses it.
func admitted(t *testing.T, sides []*side, p *corev1.Pod, static bool) bool {
	t.Helper()
	if *only >= 0 || testing.Verbose() {
		text, err := yaml.Marshal(p.Spec)
		t.Logf("%s, static %v: %s%v", p.Name, static, text, err)
	}
	if !static {
		err := create(t, sides, p)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	}
	if p.Spec.PriorityClassName != "" {
		return false // the priority of a static pod is in its manifest
	}
	for _, s := range sides {
		s.addStatic(t, p)
	}
	return true
}

// endOne ends a pod of a side, if it is there still, and waits for that.
func (s *side) endOne(t *testing.T, name string) {
	t.Helper()
	if i := slices.Index(s.static, name); i >= 0 {
		s.place.RemoveManifest(t, name+".yaml")
		s.static = slices.Delete(s.static, i, i+1)
	} else if err := s.cp.Admin.CoreV1().Pods(s.ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("%s: %s: %v", s.agent, name, err)
	}
	s.waitGone(t, []string{name})
}

// waitDecided waits until a side has decided about all its pods. created: the last one is new.
func (s *side) waitDecided(t *testing.T, created bool) {
	t.Helper()
	if created {
		_ = harness.Within(t.Context(), 8*time.Second, func(ctx context.Context) error { // one that is refused may have none
			pods, err := s.pods(ctx)
			if n := len(s.static); err == nil && n > 0 && pods[s.static[n-1]] == nil {
				err = errors.New("no mirror yet")
			}
			return err
		})
	}
	harness.Eventually(t, time.Minute, "a decision about each pod", func(ctx context.Context) error {
		pods, err := s.pods(ctx)
		for name, p := range pods {
			if _, settled := progressOf(p); !settled || p.Name == name && p.Status.ObservedGeneration < p.Generation {
				err = errors.Join(err, fmt.Errorf("%s: %s: %s", s.agent, name, p.Status.Phase))
			}
		}
		return err
	})
}

// compareAll compares the pods of both sides once they agree, or after some time. It returns those
// that only one of them shows.
func (j *judge) compareAll(t *testing.T, when string, names []string, sides []*side) (hidden []string) {
	t.Helper()
	there := func(s *side, name string) bool {
		pods, err := s.pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return pods[name] != nil
	}
	stories := func(name string) (reference, own *story) {
		if first, second := there(sides[0], name), there(sides[1], name); !first || !second {
			return &story{outcome: []string{fmt.Sprintf("is there: %v", first)}}, &story{outcome: []string{fmt.Sprintf("is there: %v", second)}}
		}
		reference, own = results(t, sides, name)
		reference.calls, own.calls = nil, nil
		return reference, own
	}
	_ = harness.Within(t.Context(), *settleFor, func(context.Context) error { // what is left is compared
		for _, name := range names {
			reference, own := stories(name)
			if len(j.table.Judge(compare.Diff(reference.lines(when), own.lines(when))).Unlisted) > 0 {
				return fmt.Errorf("%s: the agents differ", name)
			}
		}
		return nil
	})
	for _, name := range names {
		if there(sides[0], name) != there(sides[1], name) {
			hidden = append(hidden, name)
		}
		reference, own := stories(name)
		compareStories(j, when, name, reference, own)
	}
	return hidden
}

// tellAll shows the pods of a side.
func (s *side) tellAll(t *testing.T) {
	t.Helper()
	pods, err := s.pods(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		p := pods[name]
		t.Logf("%s: %s: %s %s %s", s.agent, name, p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
}
