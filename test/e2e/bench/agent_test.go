// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// agent is a node agent under measurement.
type agent struct {
	name, node, ns string
	run            *figures.Run
	cp             *harness.ControlPlane
	rt             *harness.Runtime
	seen           *watcher
	audit          string
	place          *harness.Place
	// sextant is nil on a kubelet's node.
	sextant *harness.Node

	processes func() []harness.Process
	// stop ends all of the agent as a crash would, start brings it back.
	stop, start func(t *testing.T)
	// parts are what can be killed, by name, and how.
	parts map[string]func(t *testing.T)
	// revive brings back what was killed, nil where that is not needed.
	revive func(t *testing.T)
}

// startAgent starts an agent's node, and returns when it is Ready.
func startAgent(t *testing.T, name string, o harness.NodeOptions, run *figures.Run, audit string) *agent {
	t.Helper()
	cp := o.ControlPlane
	a := &agent{name: name, node: o.Name, run: run, cp: cp, rt: o.Runtime, audit: audit, ns: cp.Namespace(t), parts: map[string]func(*testing.T){}}
	a.seen = watchPods(t, cp, a.ns)
	switch name {
	case figures.Reference:
		r := harness.StartReference(t, o)
		a.place, a.processes, a.start = &r.Place, r.Processes, func(t *testing.T) { r.Up(t) }
		a.stop = func(t *testing.T) { r.Kill(t) }
		a.parts["kubelet"], a.revive = a.stop, a.start
	case figures.Sextant:
		n := harness.StartNode(t, o)
		a.sextant, a.place, a.processes, a.start = n, &n.Place, n.Processes, func(t *testing.T) { n.Up(t) }
		a.stop = func(t *testing.T) { n.Down(t) }
		for _, s := range house.Services() {
			a.parts[string(s)] = func(t *testing.T) { a.kill(t, string(s)) }
		}
	default:
		t.Fatalf("-agents: no agent %q", name)
	}
	t.Cleanup(func() { a.leave(t) })
	ready(t, cp, a.node)
	return a
}

// measure takes one agent through everything.
func measure(t *testing.T, run *figures.Run, name string, o harness.NodeOptions, audit string, round int) {
	a := startAgent(t, name, o, run, audit)

	// The first pod of a node pays for what all of them share.
	a.one(t, "first")
	last := run.Last(round)
	if last {
		a.watched(t, figures.EmptyAgent, figures.EmptyRuntime, figures.EmptyMemory)
	}
	for i := range *single {
		up, down := a.one(t, fmt.Sprintf("single-%d", i))
		a.run.Add(a.name, figures.Create, up.Seconds())
		a.run.Add(a.name, figures.Delete, down.Seconds())
	}
	for _, n := range run.Pods {
		a.together(t, n, last)
	}
	for i := range *single {
		up, _ := a.one(t, fmt.Sprintf("then-%d", i))
		a.run.Add(a.name, figures.After, up.Seconds())
	}
	if !last {
		return
	}
	rest(t, *settle)
	a.run.Add(a.name, figures.AfterMemory, a.memory(t, ""))
	a.restarts(t)
	a.recoveries(t)
	if a.sextant != nil && *budget > 0 {
		a.budget(t, a.sextant)
	}
}

// ready waits for a node.
func ready(t *testing.T, cp *harness.ControlPlane, name string) {
	t.Helper()
	harness.Eventually(t, 3*time.Minute, "the node to be Ready", func(ctx context.Context) error {
		node, err := cp.Admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

// leave removes the node and what is left of its pods.
func (a *agent) leave(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := a.cp.Admin.CoreV1().Pods(a.ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
	err = errors.Join(err, a.cp.Admin.CoreV1().Nodes().Delete(ctx, a.node, metav1.DeleteOptions{}))
	if err != nil {
		t.Error(err)
	}
}

// kill ends one service as kill -9 does.
func (a *agent) kill(t *testing.T, service string) {
	for _, p := range a.processes() {
		if p.Name == service {
			if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
				t.Fatalf("kill %s: %v", service, err)
			}
			return
		}
	}
	t.Fatalf("no process of %s", service)
}

func (a *agent) create(t *testing.T, name string) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:   a.node,
			Containers: []corev1.Container{{Name: "pause", Image: images.Pause, ImagePullPolicy: corev1.PullIfNotPresent}},
		},
	}
	if _, err := a.cp.Admin.CoreV1().Pods(a.ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Errorf("create %s: %v", name, err)
	}
}

func (a *agent) remove(t *testing.T, name string) {
	if err := a.cp.Admin.CoreV1().Pods(a.ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete %s: %v", name, err)
	}
}

// one starts and ends a pod, and says how long each took.
func (a *agent) one(t *testing.T, name string) (up, down time.Duration) {
	t.Helper()
	began := time.Now()
	a.create(t, name)
	up = a.seen.await(t, "Ready", a.seen.ready, name).Sub(began)
	began = time.Now()
	a.remove(t, name)
	down = a.seen.await(t, "gone", a.seen.gone, name).Sub(began)
	if t.Failed() {
		t.FailNow()
	}
	return up, down
}

// together starts so many pods at once, watches the node with them if that is wanted,
// and ends them.
func (a *agent) together(t *testing.T, n int, watch bool) {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("many-%d-%d", n, i)
	}
	used := a.used(t)
	began := time.Now()
	parallel(len(names), func(i int) { a.create(t, names[i]) })
	up := a.seen.await(t, "Ready", a.seen.ready, names...)
	a.run.Add(a.name, figures.Of(figures.Up, n), up.Sub(began).Seconds())
	used(figures.Of(figures.UpCPU, n))
	if watch {
		rest(t, *settle)
		if n == a.run.Pods[0] {
			a.requests(t, figures.PodRequests, began, time.Now(), float64(len(names)), func(r figures.Request) bool { return !r.AboutNode() })
		}
		a.watched(t, figures.Of(figures.IdleAgent, n), figures.Of(figures.IdleRuntime, n), figures.Of(figures.Memory, n))
	}
	used = a.used(t)
	began = time.Now()
	parallel(len(names), func(i int) { a.remove(t, names[i]) })
	gone := a.seen.await(t, "gone", a.seen.gone, names...)
	a.run.Add(a.name, figures.Of(figures.Down, n), gone.Sub(began).Seconds())
	used(figures.Of(figures.DownCPU, n))
	if watch && n == a.run.Pods[0] {
		a.requests(t, figures.EndRequests, began, time.Now(), float64(len(names)), func(r figures.Request) bool { return !r.AboutNode() })
	}
	if t.Failed() {
		t.FailNow()
	}
}

// used notes what the agent's processes have used so far; its answer adds what they used
// since to a sample, and of each process to its own.
func (a *agent) used(t *testing.T) func(sample string) {
	t.Helper()
	before := map[string]time.Duration{}
	processes := a.processes()
	for _, p := range processes {
		before[p.Name] = cpu(t, []harness.Process{p})
	}
	return func(sample string) {
		t.Helper()
		sum := 0.0
		for _, p := range processes {
			d := (cpu(t, []harness.Process{p}) - before[p.Name]).Seconds()
			a.run.Add(a.name, figures.PartOf(sample, p.Name), d)
			sum += d
		}
		a.run.Add(a.name, sample, sum)
	}
}

// watched leaves the node alone and measures what it does then.
func (a *agent) watched(t *testing.T, agentKey, runtimeKey, memoryKey string) {
	t.Helper()
	rest(t, *settle)
	agent, runtime := a.processes(), a.rt.Processes()
	before := make([]time.Duration, len(agent))
	began := time.Now()
	for i := range agent {
		before[i] = cpu(t, agent[i:i+1])
	}
	runtimeBefore := cpu(t, runtime)
	rest(t, *idle)
	span := time.Since(began)
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / span.Seconds() }
	sum := 0.0
	for i, p := range agent {
		part := percent(cpu(t, agent[i:i+1]) - before[i])
		a.run.Add(a.name, figures.PartOf(agentKey, p.Name), part)
		sum += part
	}
	a.run.Add(a.name, agentKey, sum)
	a.run.Add(a.name, runtimeKey, percent(cpu(t, runtime)-runtimeBefore))
	a.run.Add(a.name, memoryKey, a.memory(t, memoryKey))
	if memoryKey == figures.Of(figures.Memory, a.run.Pods[0]) {
		a.requests(t, figures.IdleRequests, began, began.Add(span), span.Minutes(), func(figures.Request) bool { return true })
	}
}

// memory is the PSS of the agent's processes in MiB; that of each is added to its own
// sample, unless the sample has no name.
func (a *agent) memory(t *testing.T, sample string) (sum float64) {
	t.Helper()
	for _, p := range a.processes() {
		bytes, err := p.PSS()
		if err != nil {
			t.Fatal(err)
		}
		mib := float64(bytes) / (1 << 20)
		if sum += mib; sample != "" {
			a.run.Add(a.name, figures.PartOf(sample, p.Name), mib)
		}
	}
	return sum
}

// cpu is what processes have used; one that ended takes its time with it.
func cpu(t *testing.T, all []harness.Process) (sum time.Duration) {
	t.Helper()
	for _, p := range all {
		d, err := p.CPU()
		if err != nil {
			t.Fatalf("%s ended while it was idle: %v", p.Name, err)
		}
		sum += d
	}
	return sum
}

// auditDelay is how long the API server may keep a line before it writes it.
const auditDelay = 3 * time.Second

// requests counts what the agent asked the API server in a time, per so many.
func (a *agent) requests(t *testing.T, key string, begin, end time.Time, per float64, wanted func(figures.Request) bool) {
	t.Helper()
	rest(t, auditDelay)
	counts, sum := figures.Count(a.audited(t), begin, end, wanted)
	for kind := range counts {
		counts[kind] /= per
	}
	a.run.Add(a.name, key, sum/per)
	if a.run.Requests == nil {
		a.run.Requests = map[string]map[string]map[string]float64{}
	}
	if a.run.Requests[a.name] == nil {
		a.run.Requests[a.name] = map[string]map[string]float64{}
	}
	a.run.Requests[a.name][key] = counts
}

func (a *agent) audited(t *testing.T) []figures.Request {
	t.Helper()
	f, err := os.Open(a.audit)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := figures.ReadAudit(f, "system:node:"+a.node)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// restarts measures from the start of the agent to the first work done.
func (a *agent) restarts(t *testing.T) {
	for i := range *recovery {
		name := fmt.Sprintf("waits-%d", i)
		a.stop(t)
		a.create(t, name)
		began := time.Now()
		a.start(t)
		a.run.Add(a.name, figures.FirstSync, a.seen.await(t, "Ready", a.seen.ready, name).Sub(began).Seconds())
		a.remove(t, name)
		a.seen.await(t, "gone", a.seen.gone, name)
	}
}

// recoveries kill each part in turn and make a pod at that moment. Recovery is of
// the part with the greatest median.
func (a *agent) recoveries(t *testing.T) {
	var slowest figures.Series
	for part, kill := range a.parts {
		var times figures.Series
		for i := range *recovery {
			name := fmt.Sprintf("after-%s-%d", part, i)
			began := time.Now()
			kill(t)
			a.create(t, name)
			if a.revive != nil {
				a.revive(t)
			}
			times = append(times, a.seen.await(t, "Ready", a.seen.ready, name).Sub(began).Seconds())
			a.remove(t, name)
			a.seen.await(t, "gone", a.seen.gone, name)
			// Supervisors wait longer before they restart what dies often.
			rest(t, time.Second)
		}
		a.run.Add(a.name, figures.PartOf(figures.Recovery, part), times...)
		if slowest == nil || times.Quantile(.5) > slowest.Quantile(.5) {
			slowest = times
		}
	}
	a.run.Add(a.name, figures.Recovery, slowest...)
}

// budget starts pods while the services say more, and parts their starts into
// stages.
func (a *agent) budget(t *testing.T, n *harness.Node) {
	a.stop(t)
	if out, err := n.TryUp(t.Context(), "--log-level=debug"); err != nil {
		t.Fatalf("sextant up: %v\n%s", err, out)
	}
	a.one(t, "budget-first")
	var starts []figures.Start
	for i := range *budget {
		name := fmt.Sprintf("budget-%d", i)
		sent := time.Now()
		a.create(t, name)
		seen := a.seen.await(t, "Ready", a.seen.ready, name)
		starts = append(starts, figures.Start{UID: a.seen.uid(name), Sent: sent, Seen: seen})
		a.remove(t, name)
		a.seen.await(t, "gone", a.seen.gone, name)
	}
	rest(t, auditDelay)
	var lines []figures.Line
	for _, service := range []house.Service{house.Config, house.PodWorker} {
		f, err := os.Open(filepath.Join(n.Logs, string(service)+".log"))
		if err != nil {
			t.Fatal(err)
		}
		more, err := figures.ReadLog(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, more...)
	}
	requests := a.audited(t)
	for i := range starts {
		s := &starts[i]
		s.Lines = lines
		for _, r := range requests {
			// The last write that was received before the client knew.
			if r.Kind() == "patch pods/status" && r.ObjectRef.Name == fmt.Sprintf("budget-%d", i) && r.ObjectRef.Namespace == a.ns && r.Received.Before(s.Seen) {
				s.Asked, s.Answered = r.Received, r.Answered
			}
		}
	}
	stages, err := figures.Budget(starts)
	if err != nil {
		t.Fatal(err)
	}
	a.run.Budget = stages
}
