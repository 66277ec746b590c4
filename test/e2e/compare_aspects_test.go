// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/compare"
)

// changing are the fields of API objects that the API server counts up.
var changing = []string{"*metadata.resourceVersion", "*metadata.managedFields", "*metadata.generation", "*observedGeneration"}

func aspects() []aspect {
	return append(kubectlAspects(), []aspect{
		{name: "metrics", facts: metricNames("/metrics")},
		{name: "metrics-cadvisor", facts: ofThisLab(metricSeries("/metrics/cadvisor"))},
		{name: "metrics-resource", facts: metricSeries("/metrics/resource")},
		{name: "metrics-probes", facts: metricSeries("/metrics/probes")},
		{name: "metrics-slis", facts: metricSeries("/metrics/slis")},
		{name: "stats-summary", facts: ofThisLab(document("/stats/summary", compare.Flattener{Kind: []string{"*"}}))},
		{name: "stats-summary-cpu-memory", facts: document("/stats/summary?only_cpu_and_memory=true", compare.Flattener{Kind: []string{"*"}})},
		{name: "configz", facts: document("/configz", compare.Flattener{})},
		{name: "pods", facts: document("/pods", compare.Flattener{Drop: append(unsteady(), changing...)})},
		{name: "runningpods", facts: document("/runningpods/", compare.Flattener{Drop: changing})},
		{name: "node", facts: nodeFacts},
		{name: "lease", facts: leaseFacts},
		{name: "csinode", facts: csiNodeFacts},
		{name: "node-events", facts: func(_ context.Context, s *side) ([]string, error) {
			return s.eventFacts(corev1.NamespaceDefault, s.Name), nil
		}},
		{name: "answers", facts: answers, alone: true},
		{name: "log-files", facts: func(ctx context.Context, s *side) ([]string, error) {
			return s.lines(ctx, "/logs/")
		}},
		{name: "pod-statuses", facts: podStatuses},
		{name: "pod-events", facts: podEvents},
	}...)
}

// unsteady are the statuses of pods that are never the same for long.
func unsteady() []string {
	var all []string
	for _, pod := range comparedPods() {
		if pod.unsteady {
			all = append(all, "items["+pod.name+"].status", "items["+pod.name+"-NODE].status")
		}
	}
	return all
}

// counts are what differs between two moments of an unsteady pod.
var counts = regexp.MustCompile(`(restartCount = |back-off )[0-9ms]+`)

// labs are the names of labs, which begin those of their interfaces.
var labs = regexp.MustCompile(`\bsxt[0-9a-f]{6}`)

// ofThisLab leaves out the interfaces of other tests that run at the same time. A pod in
// the host's network has them too, and a kubelet lists them some seconds late.
func ofThisLab(facts func(context.Context, *side) ([]string, error)) func(context.Context, *side) ([]string, error) {
	return func(ctx context.Context, s *side) ([]string, error) {
		all, err := facts(ctx, s)
		return slices.DeleteFunc(all, func(fact string) bool {
			lab := labs.FindString(fact)
			return lab != "" && lab != s.lab && strings.Contains(fact, "interface")
		}), err
	}
}

func metricNames(path string) func(context.Context, *side) ([]string, error) {
	return func(ctx context.Context, s *side) ([]string, error) {
		page, err := s.get(ctx, path)
		if err != nil {
			return nil, err
		}
		return compare.Metrics(page, nil)
	}
}

func metricSeries(path string) func(context.Context, *side) ([]string, error) {
	return func(ctx context.Context, s *side) ([]string, error) {
		page, err := s.get(ctx, path)
		if err != nil {
			return nil, err
		}
		return compare.Metrics(page, s.normalizer())
	}
}

func document(path string, f compare.Flattener) func(context.Context, *side) ([]string, error) {
	return func(ctx context.Context, s *side) ([]string, error) {
		body, err := s.get(ctx, path)
		if err != nil {
			return nil, err
		}
		f.Names = s.normalizer()
		return f.Facts(body)
	}
}

// lines are the lines of a page.
func (s *side) lines(ctx context.Context, path string) ([]string, error) {
	page, err := s.get(ctx, path)
	return slices.Collect(strings.Lines(s.normalizer().Text(string(page)))), err
}

// object are the facts of an object of the API.
func (s *side) object(what string, v any, err error, drop ...string) ([]string, error) {
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return nil, err
	}
	if err := s.keep(what+".json", b); err != nil {
		return nil, err
	}
	return compare.Flattener{Names: s.normalizer(), Drop: append(drop, changing...)}.Facts(b)
}

func nodeFacts(ctx context.Context, s *side) ([]string, error) {
	node, err := s.cp.Admin.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{})
	return s.object("node", node, err)
}

func leaseFacts(ctx context.Context, s *side) ([]string, error) {
	lease, err := s.cp.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, s.Name, metav1.GetOptions{})
	return s.object("lease", lease, err)
}

func csiNodeFacts(ctx context.Context, s *side) ([]string, error) {
	node, err := s.cp.Admin.StorageV1().CSINodes().Get(ctx, s.Name, metav1.GetOptions{})
	return s.object("csinode", node, err)
}

// eventFacts are the node agent's Events about an object, each kind once.
func (s *side) eventFacts(ns, name string) []string {
	n := s.normalizer()
	var facts []string
	for _, e := range s.seen.eventsOf(ns, name) {
		if e.Source.Component != "kubelet" {
			continue
		}
		object := e.InvolvedObject.Kind
		if e.InvolvedObject.FieldPath != "" {
			object += " " + e.InvolvedObject.FieldPath
		}
		facts = append(facts, n.Text(fmt.Sprintf("%s %s about %s from %s: %s", e.Type, e.Reason, object, e.Source.Host, e.Message)))
	}
	slices.Sort(facts)
	return slices.Compact(facts)
}

// podStatuses are what the API server knows of the pods when they are as the
// test wants them.
func podStatuses(_ context.Context, s *side) ([]string, error) {
	return ofPods(s, func(pod comparedPod) ([]string, error) {
		name := pod.nameOn(s)
		last := s.seen.pod(s.ns, name)
		if last == nil {
			return []string{"is not in the API"}, nil
		}
		var version *corev1.Pod
		for _, v := range s.seen.history(s.ns, name) {
			if pod.settled(v) == nil {
				version = v
			}
		}
		if version == nil {
			return []string{"is not as it should be: " + s.normalizer().Text(brief(last))}, nil
		}
		facts, err := s.object("pod-"+pod.name, version, nil, "metadata.creationTimestamp")
		for i := range facts {
			if pod.unsteady {
				facts[i] = counts.ReplaceAllString(facts[i], "${1}COUNT")
			}
		}
		return facts, err
	})
}

func podEvents(_ context.Context, s *side) ([]string, error) {
	return ofPods(s, func(pod comparedPod) ([]string, error) { return s.eventFacts(s.ns, pod.nameOn(s)), nil })
}

// ofPods are facts of every pod, with its name before each.
func ofPods(s *side, of func(comparedPod) ([]string, error)) ([]string, error) {
	var all []string
	for _, pod := range comparedPods() {
		facts, err := of(pod)
		if err != nil {
			return nil, fmt.Errorf("%s: pod %s: %w", s.name, pod.name, err)
		}
		for _, f := range facts {
			all = append(all, pod.name+": "+f)
		}
	}
	return all, nil
}

// requests are sent to both nodes; where no client is named, by admin.
func requests(s *side) []string {
	pod := "/" + s.ns + "/plain/main"
	return []string{
		"GET /healthz", "GET /healthz/ping", "GET /healthz/log", "GET /healthz/syncloop", "GET /healthz/device-plugin", "GET /healthz/none",
		"GET /healthz?verbose", "GET /healthz?exclude=ping&verbose", "GET /livez", "GET /readyz", "POST /healthz", "HEAD /healthz",
		"GET healthz/healthz", "GET healthz/healthz/ping", "GET healthz/healthz?verbose", "GET healthz/metrics", "GET healthz/", "GET healthz/healthz/log", "POST healthz/healthz",
		"GET /", "GET /nothing", "GET /spec", "GET /stats", "GET /stats/", "GET /stats/container", "POST /stats/summary", "PUT /stats/summary", "GET /stats/summary?only_cpu_and_memory=perhaps",
		"POST /pods", "GET /pods/", "GET /pods/x", "DELETE /pods", "GET /runningpods", "POST /runningpods/", "POST /metrics", "GET /metrics/", "GET /metrics/none", "POST /configz", "GET /configz/",
		"GET /containerLogs", "GET /containerLogs/", "GET /containerLogs/" + s.ns, "GET /containerLogs/" + s.ns + "/plain", "POST /containerLogs" + pod,
		"GET /containerLogs" + pod + "?tailLines=x", "GET /containerLogs" + pod + "?tailLines=-1", "GET /containerLogs" + pod + "?limitBytes=0", "GET /containerLogs" + pod + "?sinceSeconds=0",
		"GET /containerLogs" + pod + "?sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z", "GET /containerLogs" + pod + "?timestamps=perhaps&limitBytes=4", "GET /containerLogs" + pod + "?stream=Both",
		"GET /containerLogs" + pod + "?stream=Stdout&tailLines=0", "GET /containerLogs" + pod + "?stream=Stdout&tailLines=1", "GET /containerLogs" + pod + "?previous=true", "GET /containerLogs" + pod + "?tail=x", "GET /containerLogs" + pod + "?tail=0", "GET /containerLogs" + pod + "?tail=all&limitBytes=1",
		"GET /containerLogs/" + s.ns + "/plain/none", "GET /containerLogs/" + s.ns + "/none/main", "GET /containerLogs/none/plain/main",
		"GET /containerLogs/" + s.ns + "/noconfig/main", "GET /containerLogs/" + s.ns + "/rejected/main", "GET /containerLogs/" + s.ns + "/crash/main?previous=true&limitBytes=1",
		"GET /exec" + pod, "POST /exec" + pod, "POST /exec" + pod + "?command=true", "POST /exec" + pod + "?command=true&output=1", "POST /exec" + pod + "?command=true&output=true", "PUT /exec" + pod,
		"POST /exec/" + s.ns + "/none/main?command=true&output=1", "POST /exec/" + s.ns + "/plain/none?command=true&output=1", "POST /exec/" + s.ns + "/plain", "GET /exec/",
		"POST /exec/" + s.ns + "/noconfig/main?command=true&output=1", "POST /exec/" + s.ns + "/succeeded/main?command=true&output=1",
		"POST /attach" + pod, "POST /attach" + pod + "?output=1", "POST /attach/" + s.ns + "/none/main?output=1", "POST /attach/" + s.ns + "/plain/none?output=1",
		"POST /run" + pod, "POST /run" + pod + "?cmd=/hello+echo+said", "POST /run" + pod + "?cmd=/hello+exit+3", "POST /run" + pod + "?cmd=/none", "GET /run" + pod + "?cmd=true", "POST /run/" + s.ns + "/none/main?cmd=true",
		"POST /portForward/" + s.ns + "/plain", "GET /portForward/" + s.ns + "/plain", "POST /portForward/" + s.ns + "/none", "POST /portForward/" + s.ns, "GET /portForward/" + s.ns + "/plain?port=x",
		"POST /checkpoint" + pod + "?timeout=x", "POST /checkpoint/" + s.ns + "/none/main", "POST /checkpoint/" + s.ns + "/plain/none", "GET /checkpoint" + pod,
		"GET /logs", "GET /logs/none", "GET /logs/../etc/passwd", "GET /logs/%2e%2e/etc/passwd", "POST /logs/", "GET /logs/?query=", "GET /logs/?query=a/b&query=c/d", "GET /logs/?query=kubelet&tailLines=x",
		"GET /logs/?query=kubelet&tailLines=-1", "GET /logs/?query=kubelet&sinceTime=yesterday", "GET /logs/?query=kubelet&boot=1", "GET /logs/?query=kubelet&pattern=(", "GET /logs/?query=no%20such&query=b&query=c&query=d&query=e", "GET /logs/?query=none.log",
		"GET /debug/pprof/", "GET /debug/pprof/cmdline", "GET /debug/pprof/none", "PUT /debug/flags/v", "GET /debug/flags/v", "GET /debug/", "GET /cri/", "GET /flagz", "GET /statusz", "POST /flagz",
		"GET /pods as nobody", "GET /nothing as nobody", "GET /healthz as nobody", "GET /pods as forger", "GET /pods as token none", "GET /pods as token a.b.c",
		"GET /pods as stranger", "POST /pods as stranger", "PUT /pods as stranger", "PATCH /pods as stranger", "DELETE /pods as stranger", "OPTIONS /pods as stranger", "HEAD /pods as stranger",
		"GET /pods/x as stranger", "GET /runningpods/ as stranger", "GET /healthz as stranger", "GET /healthz/ping as stranger", "GET /configz as stranger", "GET /stats/summary as stranger", "GET /metrics as stranger", "GET /metrics/cadvisor as stranger",
		"GET /logs/ as stranger", "GET /flagz as stranger", "GET /statusz as stranger", "POST /checkpoint" + pod + " as stranger", "GET /exec" + pod + " as stranger", "POST /exec" + pod + "?command=true as stranger", "POST /run" + pod + " as stranger",
		"POST /attach" + pod + " as stranger", "POST /portForward/" + s.ns + "/plain as stranger", "GET /containerLogs" + pod + " as stranger", "GET /debug/pprof/ as stranger", "GET /nothing as stranger", "GET / as stranger",
	}
}

func answers(ctx context.Context, s *side) ([]string, error) {
	var all []string
	for _, r := range requests(s) {
		method, rest, _ := strings.Cut(r, " ")
		path, as, ok := strings.Cut(rest, " as ")
		if !ok {
			as = "admin"
		}
		facts, err := s.answerFacts(ctx, as, method, path)
		if err != nil {
			return nil, err
		}
		all = append(all, facts...)
	}
	return all, nil
}

// said are the headers of an answer that mean something to a client.
var said = []string{"Content-Type", "Content-Encoding", "Location", "Www-Authenticate", "Allow", "X-Content-Type-Options", "Cache-Control", "Audit-Id", "Connection", "Upgrade"}

// answerFacts are status, body and headers of an answer.
func (s *side) answerFacts(ctx context.Context, as, method, path string) ([]string, error) {
	url, shown := path, path
	if rest, ok := strings.CutPrefix(path, "healthz/"); ok {
		url, shown = s.healthz+"/"+rest, ":10248/"+rest
	}
	n := s.normalizer()
	request := n.Text(method + " " + shown)
	if as != "admin" {
		request += " as " + as
	}
	a, err := s.ask(ctx, as, method, url)
	if errors.Is(err, context.DeadlineExceeded) {
		return []string{request + ": no end"}, ctx.Err()
	}
	if err != nil {
		return []string{request + ": " + n.Text(err.Error())}, ctx.Err()
	}
	body := n.Text(string(a.body))
	if len(body) > 2000 {
		body = "much"
	}
	facts := []string{fmt.Sprintf("%s: %d %s %q", request, a.status, http.StatusText(a.status), body)}
	for _, h := range said {
		if v := a.header.Values(h); len(v) > 0 {
			facts = append(facts, fmt.Sprintf("%s: %s: %s", request, h, n.Text(strings.Join(v, ", "))))
		}
	}
	return facts, nil
}
