// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/images"
)

var (
	fakeSizes = flag.String("fake", "100,500,1000", "TestDensity: how many pods on a runtime of no time, one number after the other")
	realSizes = flag.String("real", "100,500", "TestDensity: how many pods on containerd")
	wide      = flag.Int("wide", 4, "TestDensity: containers of each pod on containerd")
	churn     = flag.Duration("churn", 2*time.Minute, "TestDensity: how long five pods a second come and go beside the most pods")
	sampled   = flag.Bool("sampled", false, "TestDensity: containerd reads the CPU time of all containers each second, as it does by default")
	scrapes   = flag.Int("scrapes", 50, "TestDensity: how often /metrics/cadvisor is read")
	wave      = flag.Int("wave", 50, "TestDensity: how many pods of the reference kubelet's start or end at a time on containerd, 0 for all; Sextant's always do at once")
	density   = flag.String("density", "", "TestDensity: the file that gets its table")
)

// TestDensity is a node with many pods, of each agent in turn: what a start and an end cost
// by how many there are, what the agent takes at rest, how long each of its processes needs
// after kill -9, and how fast a pod starts while others come and go. What must not happen
// fails: a node that is not Ready, a container that is restarted, a pod that fails or stays.
func TestDensity(t *testing.T) {
	header := harness.The(t).Header(t)
	cp := harness.StartControlPlane(t)
	audit := cp.Audit(t)
	start, how := harness.StartUnsampled, "containerd, stats_collect_period 1h"
	if *sampled {
		start, how = func(t testing.TB, f harness.Flavour) *harness.Runtime { return harness.StartRuntime(t, f) }, "containerd"
	}
	var tables strings.Builder
	t.Run("fake", func(t *testing.T) {
		all := map[string][]denseRow{}
		for name := range strings.SplitSeq(*agents, ",") {
			t.Run(name, func(t *testing.T) {
				rt := fakecri.Start(t, fakecri.Config{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS, Images: []fakecri.Image{{Ref: images.Pause}}})
				open(t, rt.Socket())
				c := newCrowd(t, name, cp, start(t, harness.V2), audit, rt.Socket(), sizes(t, "fake", *fakeSizes), 1)
				c.grow(t)
				c.churn(t)
				c.shrink(t)
				all[name] = c.rows
			})
		}
		tables.WriteString(table("on a runtime of no time", all))
	})
	t.Run("containerd", func(t *testing.T) {
		all := map[string][]denseRow{}
		for name := range strings.SplitSeq(*agents, ",") {
			t.Run(name, func(t *testing.T) {
				c := newCrowd(t, name, cp, start(t, harness.V2), audit, "", sizes(t, "real", *realSizes), *wide)
				if name == figures.Reference {
					c.wave = *wave
				}
				c.grow(t)
				c.scrape(t)
				c.shrink(t)
				all[name] = c.rows
			})
		}
		where := fmt.Sprintf("on %s, %d containers in each pod", how, *wide)
		if *wave > 0 && all[figures.Reference] != nil {
			where += fmt.Sprintf("; the reference kubelet's start and end %d at a time", *wave)
		}
		tables.WriteString(table(where, all))
	})
	fmt.Print("\n" + header + tables.String())
	if *density == "" || t.Failed() {
		return
	}
	if err := os.WriteFile(*density, []byte(header+tables.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// crowd is a node whose pods become more.
type crowd struct {
	*agent
	sizes []int
	wide  int
	// wave is how many pods start or end at a time, 0 for all.
	wave  int
	began time.Time
	rows  []denseRow
	// restarts is the CPU of a pod in the restart of each process, in ms, with the fewest pods.
	restarts map[string]float64
}

// denseRow is a line of the table; most is what it may be, 0 for what has no bound.
type denseRow struct {
	what  string
	value float64
	unit  string
	most  float64
}

func (c *crowd) row(what string, value float64, unit string, most float64) {
	c.rows = append(c.rows, denseRow{what, value, unit, most})
}

// newCrowd starts an agent's node without pods, on another socket than its runtime's if given.
func newCrowd(t *testing.T, name string, cp *harness.ControlPlane, host *harness.Runtime, audit, socket string, sizes []int, wide int) *crowd {
	t.Helper()
	most := slices.Max(sizes)
	o := harness.NodeOptions{Runtime: host, ControlPlane: cp, Name: fmt.Sprintf("dense-%s-%d", name, most), Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.ClusterDNS, c.ClusterDomain = []string{"10.96.0.10"}, "cluster.local"
		c.MaxPods = int32(most + 1000)
		if socket != "" {
			c.ContainerRuntimeEndpoint = "unix://" + socket
		}
	}}
	a := startAgent(t, name, o, &figures.Run{}, audit)
	if _, err := cp.Admin.CoreV1().ConfigMaps(a.ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &crowd{agent: a, sizes: sizes, wide: wide, began: time.Now(), restarts: map[string]float64{}}
}

// pod makes a pod with a ConfigMap and a token.
func (c *crowd) pod(t *testing.T, name string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: c.node, TerminationGracePeriodSeconds: new(int64(5)),
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
		}}}},
	}}
	for i := range c.wide {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("pause-%d", i), Image: images.Pause, ImagePullPolicy: corev1.PullIfNotPresent,
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
		})
	}
	if _, err := c.cp.Admin.CoreV1().Pods(c.ns).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Errorf("create %s: %v", name, err)
	}
}

// meter notes what the agent used and asked since it was made.
func (c *crowd) meter(t *testing.T) func() (took, used time.Duration) {
	t.Helper()
	processes, began := c.processes(), time.Now()
	before := cpu(t, processes)
	return func() (took, used time.Duration) { return time.Since(began), cpu(t, processes) - before }
}

// each notes what each process of the agent has used. Its answer is what each has used since,
// for each of so many pods, in ms.
func (c *crowd) each(t *testing.T) func(pods int) string {
	t.Helper()
	before := map[harness.Process]time.Duration{}
	for _, p := range c.processes() {
		before[p] = cpu(t, []harness.Process{p})
	}
	return func(pods int) string {
		var all []string
		for _, p := range c.processes() {
			used := cpu(t, []harness.Process{p}) - before[p]
			all = append(all, fmt.Sprintf("%s %.1f", p.Name, used.Seconds()*1000/float64(pods)))
		}
		return strings.Join(all, ", ")
	}
}

// grow starts pods until there are as many as each size says.
func (c *crowd) grow(t *testing.T) {
	rest(t, *settle)
	empty, there, first := c.memory(t, ""), 0, 0.0
	for _, size := range c.sizes {
		names := make([]string, size-there)
		for i := range names {
			names[i] = fmt.Sprintf("pod-%d", there+i)
		}
		meter, began, parts := c.meter(t), time.Now(), c.each(t)
		took := c.waves(t, names, c.pod, "Ready", c.seen.ready).Sub(began)
		c.rests(t) // what follows the last of few would be missing more than that of many
		_, used := meter()
		t.Logf("CPU of %d starts, in ms a start: %s", len(names), parts(len(names)))
		each := used.Seconds() * 1000 / float64(len(names))
		c.row(fmt.Sprintf("start, %d to %d pods", there, size), took.Seconds(), "s", 0)
		bound := 0.0
		if first == 0 {
			first = each
		} else {
			bound = 1.2 * first
		}
		c.row(fmt.Sprintf("start, %d to %d pods: CPU of a pod", there, size), each, "ms", bound)
		rest(t, *settle)
		kinds, requests := figures.Count(c.audited(t), began, time.Now(), func(r figures.Request) bool { return !r.AboutNode() })
		c.row(fmt.Sprintf("start, %d to %d pods: API requests of a pod", there, size), requests/float64(len(names)), "", 0)
		t.Logf("requests of %d starts: %v", len(names), kinds)
		there = size
		meter = c.meter(t)
		rest(t, *idle)
		idled, used := meter()
		c.row(fmt.Sprintf("at rest with %d pods", there), 100*used.Seconds()/idled.Seconds(), "%", 1.5)
		memory := c.memory(t, "")
		c.row(fmt.Sprintf("memory with %d pods (PSS)", there), memory, "MiB", 0)
		if size == c.sizes[len(c.sizes)-1] {
			c.row(fmt.Sprintf("memory of a pod, of %d", size), (memory-empty)*1024/float64(size), "KiB", 60)
		}
		c.kills(t, size)
	}
	c.steady(t)
}

// waves does something to pods, so many at a time, and returns when the last one was seen.
func (c *crowd) waves(t *testing.T, names []string, do func(*testing.T, string), what string, in map[string]time.Time) (last time.Time) {
	t.Helper()
	size := c.wave
	if size == 0 {
		size = len(names)
	}
	for wave := range slices.Chunk(names, size) {
		parallel(len(wave), func(i int) { do(t, wave[i]) })
		last = c.seen.await(t, what, in, wave...)
	}
	return last
}

// steady fails for what must not have happened: see TestDensity.
func (c *crowd) steady(t *testing.T) {
	t.Helper()
	node, err := c.cp.Admin.CoreV1().Nodes().Get(t.Context(), c.node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && (condition.Status != corev1.ConditionTrue || condition.LastTransitionTime.After(c.began)) {
			t.Errorf("the node is Ready=%s since %s: %s", condition.Status, condition.LastTransitionTime, condition.Message)
		}
	}
	pods, err := c.cp.Admin.CoreV1().Pods(c.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, "pod-") && !isReady(&p) {
			t.Errorf("pod %s is not Ready: %s %s", p.Name, p.Status.Phase, p.Status.Reason)
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("container %s of pod %s was restarted", s.Name, p.Name)
			}
		}
	}
}

// kills ends each process as kill -9 does, makes a pod at that moment, and measures until
// the process serves, the pod is Ready, and the agent is at rest again. Rows are of the most
// pods; a restart costs no more for each of them than with the fewest.
func (c *crowd) kills(t *testing.T, pods int) {
	for _, part := range slices.Sorted(maps.Keys(c.parts)) {
		began, all := time.Now(), c.processes()
		i := slices.IndexFunc(all, func(p harness.Process) bool { return p.Name == part })
		killed := all[i].PID
		before := cpu(t, slices.Delete(all, i, i+1))
		c.parts[part](t)
		if c.revive != nil {
			c.revive(t)
		}
		name := fmt.Sprintf("kill-%s-%d", part, pods)
		c.pod(t, name)
		serves := c.serves(t, part, killed).Sub(began).Seconds()
		up := c.seen.await(t, "Ready", c.seen.ready, name).Sub(began).Seconds()
		settled := c.rests(t).Sub(began).Seconds()
		each := (cpu(t, c.processes()) - before).Seconds() * 1000 / float64(pods) // the process that took its place included
		if pods == c.sizes[0] {
			c.restarts[part] = each
		}
		if pods == c.sizes[len(c.sizes)-1] {
			bound := 0.0
			if part == string(house.PodWorker) {
				bound = 1
			}
			c.row(fmt.Sprintf("kill -9 of %s: it serves after", part), serves, "s", 3*bound)
			if c.sextant != nil {
				c.row(fmt.Sprintf("kill -9 of %s: all settled after", part), settled, "s", 8*bound)
			}
			c.row(fmt.Sprintf("kill -9 of %s: a new pod is Ready after", part), up, "s", 0)
			c.row(fmt.Sprintf("kill -9 of %s: CPU of a pod", part), each, "ms", 1.2*c.restarts[part])
		}
		c.remove(t, name)
		c.seen.await(t, "gone", c.seen.gone, name)
		c.rests(t)
	}
	c.steady(t)
}

// serves waits until another process serves in place of the one that was killed. A kubelet
// does when it was started again.
func (c *crowd) serves(t *testing.T, part string, killed int) time.Time {
	t.Helper()
	if c.sextant != nil {
		harness.Eventually(t, patience, part+" to serve again", func(ctx context.Context) error {
			rows, err := c.sextant.Services(ctx)
			for _, r := range rows {
				if r.Service == part && r.Health == "serving" && r.PID != killed {
					return nil
				}
			}
			return errors.Join(err, errors.New("it does not"))
		})
	}
	return time.Now()
}

// rests waits until the agent uses less than a tenth of a core for a second, and returns
// when that began. A kubelet with many pods never does, so it is not waited for: what it does
// after the last pod is not in its figures.
func (c *crowd) rests(t *testing.T) time.Time {
	t.Helper()
	if c.sextant == nil {
		return time.Now()
	}
	for limit := time.Now().Add(time.Minute); ; {
		began := time.Now()
		meter := c.meter(t)
		rest(t, time.Second)
		if took, used := meter(); used < took/10 {
			return began
		}
		if time.Now().After(limit) {
			t.Fatal("the agent does not come to rest within a minute")
		}
	}
}

// lives is how long a pod of the churn lives.
const lives = 10 * time.Second

// churn has five pods come each second, and go again; none goes before it is Ready.
func (c *crowd) churn(t *testing.T) {
	memory, began := c.memory(t, ""), time.Now()
	meter := c.meter(t)
	ticker := time.NewTicker(time.Second / 5)
	defer ticker.Stop()
	made, removed := map[string]time.Time{}, 0
	name := func(i int) string { return fmt.Sprintf("churn-%d", i) }
	for i := 0; time.Since(began) < *churn; i++ {
		made[name(i)] = time.Now()
		c.pod(t, name(i))
		for ; removed <= i && time.Since(made[name(removed)]) > lives && c.seen.is(c.seen.ready, name(removed)); removed++ {
			c.remove(t, name(removed))
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
	took, used := meter()
	var names []string
	var starts figures.Series
	for name := range made {
		names = append(names, name)
	}
	c.seen.await(t, "Ready", c.seen.ready, names...)
	rest(t, lives)
	for ; removed < len(made); removed++ {
		c.remove(t, name(removed))
	}
	c.seen.await(t, "gone", c.seen.gone, names...)
	for name, at := range made {
		starts = append(starts, c.seen.ready[name].Sub(at).Seconds())
	}
	c.row(fmt.Sprintf("%.1f pods a second come and go for %s: a start, p50", float64(len(made))/took.Seconds(), *churn), starts.Quantile(.5), "s", 0)
	c.row("the same: a start, p99", starts.Quantile(.99), "s", .5)
	c.row("the same: a start, slowest", starts.Max(), "s", 0)
	c.row("the same: CPU of the agent", 100*used.Seconds()/took.Seconds(), "%", 0)
	c.row("the same: CPU of a pod", used.Seconds()*1000/float64(len(made)), "ms", 0)
	c.rests(t)
	rest(t, *settle)
	c.row("the same: memory that it has left (PSS)", c.memory(t, "")-memory, "MiB", 0)
	c.steady(t)
}

// shrink ends pods until none is left, as many at once as were started at once.
func (c *crowd) shrink(t *testing.T) {
	there, last := c.sizes[len(c.sizes)-1], 0.0
	for i, size := range slices.Backward(append([]int{0}, c.sizes...)) {
		if size == there {
			continue
		}
		var names []string
		for i := size; i < there; i++ {
			names = append(names, fmt.Sprintf("pod-%d", i))
		}
		meter, began := c.meter(t), time.Now()
		took := c.waves(t, names, c.remove, "gone", c.seen.gone).Sub(began)
		c.rests(t)
		_, used := meter()
		each := used.Seconds() * 1000 / float64(len(names))
		c.row(fmt.Sprintf("end, %d to %d pods", there, size), took.Seconds(), "s", 0)
		c.row(fmt.Sprintf("end, %d to %d pods: CPU of a pod", there, size), each, "ms", 0)
		if i == 0 {
			c.row("end: CPU of a pod, with the most pods to with the fewest", last/each, "", 1.2)
		} else if last == 0 {
			last = each
		}
		there = size
	}
	rest(t, *settle)
	c.row("memory after the end of all (PSS)", c.memory(t, ""), "MiB", 0)
}

// scrape reads /metrics/cadvisor as Prometheus does.
func (c *crowd) scrape(t *testing.T) {
	client := harness.Unverified(c.cp.ClientCertificate(t, "prometheus", "system:masters"))
	var took figures.Series
	size, meter := 0, c.meter(t)
	for range *scrapes {
		began := time.Now()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d/metrics/cadvisor", c.place.IP, c.place.Port), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("scrape: %s, %v", resp.Status, err)
		}
		took, size = append(took, time.Since(began).Seconds()), len(body)
		rest(t, 2*time.Second) // a reading is kept for a second
	}
	_, used := meter()
	c.row("/metrics/cadvisor: size", float64(size)/1e6, "MB", 0)
	c.row("the same: p50", took.Quantile(.5), "s", 0)
	c.row("the same: p99", took.Quantile(.99), "s", .5)
	c.row("the same: CPU of the agent for each", used.Seconds()*1000/float64(*scrapes), "ms", 0)
}

// table is what was measured, of each agent in a column of its own; bounds are Sextant's.
func table(where string, all map[string][]denseRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", where)
	names, whats := slices.Sorted(maps.Keys(all)), []string(nil)
	for _, name := range names {
		for i, r := range all[name] {
			if slices.Contains(whats, r.what) {
				continue
			}
			// Behind what it came after.
			at := len(whats)
			if i > 0 {
				at = slices.Index(whats, all[name][i-1].what) + 1
			}
			whats = slices.Insert(whats, at, r.what)
		}
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\t%s\tto reach\n", strings.Join(names, "\t"))
	for _, what := range whats {
		fmt.Fprint(w, what)
		bound := ""
		for _, name := range names {
			i := slices.IndexFunc(all[name], func(r denseRow) bool { return r.what == what })
			if i < 0 {
				fmt.Fprint(w, "\t-")
				continue
			}
			r := all[name][i]
			fmt.Fprintf(w, "\t%.3g %s", r.value, r.unit)
			if name == figures.Sextant && r.most > 0 {
				bound = fmt.Sprintf("<= %.3g %s\t%s", r.most, r.unit, map[bool]string{true: "met", false: "missed"}[r.value <= r.most])
			}
		}
		fmt.Fprintf(w, "\t%s\n", bound)
	}
	_ = w.Flush() // into memory
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}
