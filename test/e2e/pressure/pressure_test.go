// SPDX-License-Identifier: Apache-2.0

package pressure_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
	"github.com/sextant-node/sextant/test/images"
)

// shortage is something that a pod takes until the node is short of it.
type shortage struct {
	name      string
	condition corev1.NodeConditionType
	// resource and signal are those of the eviction, as the API has them.
	resource string
	// take is the request to the pod that takes it.
	take func(n *node) string
	// others: a pod that asks for memory may come while the node is short of it; one that asks
	// for nothing never may.
	others bool
}

var shortages = []shortage{
	{
		name: "memory", condition: corev1.NodeMemoryPressure, resource: "memory", others: true,
		take: func(*node) string { return fmt.Sprintf("/hold?bytes=%d", podsMemory-keptMemory) },
	},
	{
		name: "nodefs.available", condition: corev1.NodeDiskPressure, resource: "ephemeral-storage",
		take: func(*node) string { return fmt.Sprintf("/fill?path=/scratch/file&n=%d", rootBytes*3/4) },
	},
	{
		name: "nodefs.inodesFree", condition: corev1.NodeDiskPressure, resource: "inodes",
		take: func(*node) string { return fmt.Sprintf("/many?path=/scratch/many&n=%d", rootInodes*3/4) },
	},
	{
		name: "imagefs.available", condition: corev1.NodeDiskPressure, resource: "ephemeral-storage",
		take: func(n *node) string {
			return fmt.Sprintf("/fill?path=/file&n=%d", n.free().bytes-imageKept/2)
		},
	},
	{
		name: "imagefs.inodesFree", condition: corev1.NodeDiskPressure, resource: "inodes",
		take: func(n *node) string {
			return fmt.Sprintf("/many?path=/many&n=%d", n.free().inodes-imageKeptInodes/2)
		},
	},
	{
		name: "pid.available", condition: corev1.NodePIDPressure, resource: "pids",
		take: func(*node) string { return fmt.Sprintf("/threads?n=%d", 2*spareThreads) },
	},
}

// TestPressure has the node short of one thing after the other.
func TestPressure(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d has the same kills again", *seed)
	n := start(t)
	n.random = rand.New(rand.NewPCG(*seed, 1))
	for run := range *runs {
		for _, s := range shortages {
			killed := run > 0
			if testing.Short() {
				killed = true
				if run > 0 || s.name != "memory" && s.name != "nodefs.available" {
					continue
				}
			}
			if !t.Failed() {
				n.pass(s, run, killed)
			}
		}
	}
	n.report()
}

// figures are the times of one shortage, in seconds.
type figures struct {
	name               string
	kills              int
	known, ended, over time.Duration
	findings           int
}

// pass has one shortage come and go.
func (n *node) pass(s shortage, run int, killed bool) {
	n.T.Helper()
	name := fmt.Sprintf("%s-%d", strings.ToLower(strings.ReplaceAll(s.name, ".", "-")), run)
	hog := n.hog("hog-" + name)
	began := time.Now()
	n.ask(hog, s.take(n))
	f := figures{name: s.name}
	is := func(status corev1.ConditionStatus) func() bool {
		return func() bool { c := n.condition(s.condition); return c != nil && c.Status == status }
	}
	stop := func() int { return 0 }
	if killed {
		stop = n.kills()
	}
	n.must(n.Until(n.T.Context(), "condition "+string(s.condition), is(corev1.ConditionTrue)))
	f.known = time.Since(began)
	short := n.condition(s.condition).LastTransitionTime
	if !killed { // else the node may have ended it before the API server has the report
		n.newcomers(s, name)
	}
	n.must(n.Await(n.T.Context(), hog.Name, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }))
	f.ended = time.Since(began)
	n.evicted(s, n.Told(hog.Name))
	f.kills = stop()
	n.must(n.Until(n.T.Context(), "the end of "+string(s.condition), is(corev1.ConditionFalse)))
	f.over = time.Since(began)
	if lasted := n.condition(s.condition).LastTransitionTime.Sub(short.Time); lasted < transition-time.Second { // the API has whole seconds
		n.T.Errorf("%s: %s lasted %s, and the transition period is %s", s.name, s.condition, lasted, transition)
	}
	n.must(harness.Within(n.T.Context(), load.Patience, n.Node.Serving))
	n.must(n.Remove(n.T.Context(), hog.Name))
	found := n.Look()
	if turns := n.turns(s.condition); !slices.Equal(turns, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}) {
		found = append(found, judge.Finding{Kind: judge.Flip, What: fmt.Sprintf("the condition %s became %v", s.condition, turns)})
	}
	for _, gone := range n.sentenced() {
		if gone != hog.Name {
			found = append(found, judge.Finding{Kind: judge.Lost, What: "pod " + gone + " was evicted, too"})
		}
	}
	for _, finding := range found {
		n.T.Errorf("%s: %s: %s", s.name, finding.Kind, finding.What)
	}
	f.findings = len(found)
	n.T.Logf("%s: condition after %.1f s, the pod ended after %.1f s, condition over after %.1f s, %d kills", s.name, f.known.Seconds(), f.ended.Seconds(), f.over.Seconds(), f.kills)
	n.figures = append(n.figures, f)
}

func (n *node) must(err error) {
	n.T.Helper()
	if err != nil {
		n.T.Fatal(err)
	}
}

// hog is the pod that takes, over what it asks for.
func (n *node) hog(name string) *corev1.Pod {
	n.T.Helper()
	n.must(n.Create(n.T.Context(), n.pod(name, "")))
	n.must(n.Await(n.T.Context(), name, load.IsReady))
	return n.Told(name)
}

// ask tells a pod to begin, once it serves: a pod without probes is Ready before that.
func (n *node) ask(pod *corev1.Pod, what string) {
	n.T.Helper()
	n.must(harness.Within(n.T.Context(), load.Patience, func(ctx context.Context) error { return harness.Ask(ctx, pod, what) }))
}

// newcomers are refused while the node is short of something that they would take more of.
func (n *node) newcomers(s shortage, name string) {
	n.T.Helper()
	for kind, welcome := range map[string]bool{"": false, "8Mi": s.others} {
		pod := n.pod(fmt.Sprintf("new-%s-%t", name, kind != ""), kind)
		n.must(n.Create(n.T.Context(), pod))
		n.must(n.Await(n.T.Context(), pod.Name, func(p *corev1.Pod) bool { return load.IsReady(p) || p.Status.Phase == corev1.PodFailed }))
		// The shortage may be over for the newcomer, and then it runs.
		c := n.condition(s.condition)
		switch told := n.Told(pod.Name); {
		case !welcome && told.Status.Phase != corev1.PodFailed && c.Status == corev1.ConditionTrue:
			n.T.Errorf("%s: a pod that asks for %q was not refused", s.name, kind)
		case welcome && told.Status.Phase == corev1.PodFailed:
			n.T.Errorf("%s: a pod that asks for %q was refused: %s %s", s.name, kind, told.Status.Reason, told.Status.Message)
		case told.Status.Phase == corev1.PodFailed && (told.Status.Reason != "Evicted" || told.Status.Message != fmt.Sprintf("Pod was rejected: The node had condition: [%s]. ", s.condition)):
			n.T.Errorf("%s: refused with %q, %q", s.name, told.Status.Reason, told.Status.Message)
		}
		n.must(n.Remove(n.T.Context(), pod.Name))
	}
}

// evicted looks at the status of the pod that went.
func (n *node) evicted(s shortage, pod *corev1.Pod) {
	n.T.Helper()
	want := "The node was low on resource: " + s.resource + ". "
	if pod.Status.Reason != "Evicted" || !strings.HasPrefix(pod.Status.Message, want) {
		n.T.Errorf("%s: ended with %q, %q", s.name, pod.Status.Reason, pod.Status.Message)
	}
	if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
	}) {
		n.T.Errorf("%s: conditions %+v", s.name, pod.Status.Conditions)
	}
}

// sentenced are the pods with an event of their eviction.
func (n *node) sentenced() (names []string) {
	n.T.Helper()
	events, err := n.CP.Admin.CoreV1().Events(n.NS).List(n.T.Context(), metav1.ListOptions{FieldSelector: "reason=Evicted"})
	n.must(err)
	for _, e := range events.Items {
		if strings.HasPrefix(e.Message, "The node was low on resource") && !strings.HasPrefix(e.InvolvedObject.Name, "hog-") {
			names = append(names, e.InvolvedObject.Name)
		}
	}
	return names
}

// kills begins to kill resource, podworker and status, one or all of them, at random
// moments; stop ends that and returns how many there were.
func (n *node) kills() (stop func() int) {
	ctx, cancel := context.WithCancel(n.T.Context())
	done, count := make(chan struct{}), 0
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			victims := []house.Service{house.Resource, house.PodWorker, house.Status}
			if one := n.random.IntN(4); one < len(victims) {
				victims = victims[one : one+1]
			}
			for _, v := range victims {
				if pid := n.Node.Process(v); pid > 0 && unix.Kill(pid, unix.SIGKILL) == nil {
					count++
				}
			}
			n.Kills()
			select {
			case <-time.After(2*time.Second + time.Duration(n.random.Int64N(int64(6*time.Second)))):
			case <-ctx.Done():
			}
		}
	}()
	return func() int {
		cancel()
		<-done
		return count
	}
}

// pod asks for so much memory, or for nothing.
func (n *node) pod(name, memory string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName:   n.Node.Name,
		Containers: []corev1.Container{{Name: "hello", Image: images.Hello, VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}}},
		Volumes:    []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	if memory != "" {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return pod
}

// report prints the table.
func (n *node) report() {
	n.T.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "short of\tkills\tcondition after\tpod ended after\tcondition over after\twhat others noticed")
	for _, f := range n.figures {
		fmt.Fprintf(w, "%s\t%d\t%.1f s\t%.1f s\t%.1f s\t%d\n", f.name, f.kills, f.known.Seconds(), f.ended.Seconds(), f.over.Seconds(), f.findings)
	}
	n.must(w.Flush())
	text := harness.The(n.T).Header(n.T) + fmt.Sprintf("%d shortages, seed %d, transition period %s\n\n%s", len(n.figures), *seed, transition, b.String())
	fmt.Printf("\n%s\n", text)
	if *out != "" {
		n.must(os.WriteFile(*out, []byte(text), 0o644))
	}
}
