// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
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
	density   = flag.String("density", "", "TestDensity: the file that gets its table")
)

// TestDensity is a node with many pods: what a start and an end cost by how many there
// are, what the agent takes at rest, how long each service needs after kill -9, and how
// fast a pod starts while others come and go. What must not happen fails: a node that is
// not Ready, a container that is restarted, a pod that fails or stays.
func TestDensity(t *testing.T) {
	header := harness.The(t).Header(t)
	cp := harness.StartControlPlane(t)
	audit := cp.Audit(t)
	start, how := harness.StartUnsampled, "containerd, stats_collect_period 1h"
	if *sampled {
		start, how = func(t testing.TB, f harness.Flavour) *harness.Runtime { return harness.StartRuntime(t, f) }, "containerd"
	}
	host := start(t, harness.V2)
	var tables strings.Builder
	t.Run("fake", func(t *testing.T) {
		rt := fakecri.Start(t, fakecri.Config{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS, Images: []fakecri.Image{{Ref: images.Pause}}})
		open(t, rt.Socket())
		c := newCrowd(t, cp, host, audit, rt.Socket(), sizes(t, "fake", *fakeSizes), 1)
		c.grow(t)
		c.churn(t)
		c.shrink(t)
		tables.WriteString(c.table("on a runtime of no time"))
	})
	t.Run("containerd", func(t *testing.T) {
		c := newCrowd(t, cp, host, audit, "", sizes(t, "real", *realSizes), *wide)
		c.grow(t)
		c.scrape(t)
		c.shrink(t)
		tables.WriteString(c.table(fmt.Sprintf("on %s, %d containers in each pod", how, *wide)))
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
	n     *harness.Node
	sizes []int
	wide  int
	began time.Time
	rows  []denseRow
	// restarts is the CPU of a pod in the restart of each service, in ms, with the fewest pods.
	restarts map[house.Service]float64
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

// newCrowd starts a node without pods, on another socket than its runtime's if given.
func newCrowd(t *testing.T, cp *harness.ControlPlane, host *harness.Runtime, audit, socket string, sizes []int, wide int) *crowd {
	t.Helper()
	most := slices.Max(sizes)
	o := harness.NodeOptions{Runtime: host, ControlPlane: cp, Name: fmt.Sprintf("dense-%d", most), Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.ClusterDNS, c.ClusterDomain = []string{"10.96.0.10"}, "cluster.local"
		c.MaxPods = int32(most + 200)
		if socket != "" {
			c.ContainerRuntimeEndpoint = "unix://" + socket
		}
	}}
	n := harness.StartNode(t, o)
	a := &agent{name: figures.Sextant, node: n.Name, run: &figures.Run{}, cp: cp, rt: host, audit: audit, ns: cp.Namespace(t), processes: n.Processes}
	a.seen = watchPods(t, cp, a.ns)
	t.Cleanup(func() { a.leave(t) })
	ready(t, cp, a.node)
	if _, err := cp.Admin.CoreV1().ConfigMaps(a.ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &crowd{agent: a, n: n, sizes: sizes, wide: wide, began: time.Now(), restarts: map[house.Service]float64{}}
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

// parts notes what each process of the agent has used. Its answer is what each has used since,
// for each of so many pods, in ms.
func (c *crowd) parts(t *testing.T) func(pods int) string {
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

// killed ends a process as kill -9 does. Its answer is what the agent used since, the
// process that takes its place included.
func (c *crowd) killed(t *testing.T, pid int) (used func() time.Duration) {
	t.Helper()
	left := slices.DeleteFunc(c.processes(), func(p harness.Process) bool { return p.PID == pid })
	before := cpu(t, left)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
	return func() time.Duration { return cpu(t, c.processes()) - before }
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
		meter, began, parts := c.meter(t), time.Now(), c.parts(t)
		parallel(len(names), func(i int) { c.pod(t, names[i]) })
		took := c.seen.await(t, "Ready", c.seen.ready, names...).Sub(began)
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

// kills ends each service as kill -9 does, makes a pod at that moment, and measures until
// the service serves, the pod is Ready, and the agent is at rest again. Rows are of the most
// pods; a restart costs no more for each of them than with the fewest.
func (c *crowd) kills(t *testing.T, pods int) {
	for _, service := range house.Services() {
		before, began := c.n.Process(service), time.Now()
		used := c.killed(t, before)
		name := fmt.Sprintf("kill-%s-%d", service, pods)
		c.pod(t, name)
		serves := 0.0
		harness.Eventually(t, patience, string(service)+" to serve again", func(ctx context.Context) error {
			rows, err := c.n.Services(ctx)
			for _, r := range rows {
				if r.Service == string(service) && r.Health == "serving" && r.PID != before {
					serves = time.Since(began).Seconds()
					return nil
				}
			}
			return errors.Join(err, errors.New("it does not"))
		})
		up := c.seen.await(t, "Ready", c.seen.ready, name).Sub(began).Seconds()
		settled := c.rests(t).Sub(began).Seconds()
		each := used().Seconds() * 1000 / float64(pods)
		if pods == c.sizes[0] {
			c.restarts[service] = each
		}
		if pods == c.sizes[len(c.sizes)-1] {
			bound := 0.0
			if service == house.PodWorker {
				bound = 1
			}
			c.row(fmt.Sprintf("kill -9 of %s: it serves after", service), serves, "s", 3*bound)
			c.row(fmt.Sprintf("kill -9 of %s: all settled after", service), settled, "s", 8*bound)
			c.row(fmt.Sprintf("kill -9 of %s: a new pod is Ready after", service), up, "s", 0)
			c.row(fmt.Sprintf("kill -9 of %s: CPU of a pod", service), each, "ms", 1.2*c.restarts[service])
		}
		c.remove(t, name)
		c.seen.await(t, "gone", c.seen.gone, name)
		c.rests(t)
	}
	c.steady(t)
}

// rests waits until the agent uses less than a tenth of a core for a second, and returns
// when that began.
func (c *crowd) rests(t *testing.T) time.Time {
	t.Helper()
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

// churn has five pods come each second, and go again.
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
		for ; removed <= i && time.Since(made[name(removed)]) > lives; removed++ {
			c.remove(t, name(removed))
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
	took, used := meter()
	rest(t, lives)
	for ; removed < len(made); removed++ {
		c.remove(t, name(removed))
	}
	var names []string
	var starts figures.Series
	for name := range made {
		names = append(names, name)
	}
	c.seen.await(t, "Ready", c.seen.ready, names...)
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
		parallel(len(names), func(i int) { c.remove(t, names[i]) })
		took := c.seen.await(t, "gone", c.seen.gone, names...).Sub(began)
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
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d/metrics/cadvisor", c.n.IP, c.n.Port), nil)
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

// table is what was measured.
func (c *crowd) table(where string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", where)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range c.rows {
		bound := ""
		if r.most > 0 {
			bound = fmt.Sprintf("<= %.3g %s\t%s", r.most, r.unit, map[bool]string{true: "met", false: "missed"}[r.value <= r.most])
		}
		fmt.Fprintf(w, "%s\t%.3g %s\t%s\n", r.what, r.value, r.unit, bound)
	}
	_ = w.Flush() // into memory
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}
