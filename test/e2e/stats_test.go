// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// proxied asks a node through the API server, as kubectl get --raw does.
func (n *node) proxied(ctx context.Context, path string) ([]byte, error) {
	page, query, _ := strings.Cut(path, "?")
	request := n.cp.Admin.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", n.Name, "proxy", page)
	if name, value, ok := strings.Cut(query, "="); ok {
		request = request.Param(name, value)
	}
	return request.DoRaw(ctx)
}

func (n *node) summary(ctx context.Context) (*statsv1alpha1.Summary, error) {
	data, err := n.proxied(ctx, "/stats/summary")
	if err != nil {
		return nil, err
	}
	s := &statsv1alpha1.Summary{}
	return s, json.Unmarshal(data, s)
}

// scrape reads a page as Prometheus does.
func (n *node) scrape(ctx context.Context, path string) (map[string]*dto.MetricFamily, error) {
	data, err := n.proxied(ctx, path)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(data))
}

// series finds the one series of a family that has these labels.
func series(f *dto.MetricFamily, labels map[string]string) (*dto.Metric, error) {
	var found *dto.Metric
	for _, m := range f.GetMetric() {
		matching := 0
		for _, l := range m.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				matching++
			}
		}
		if matching != len(labels) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s %v: more than one", f.GetName(), labels)
		}
		found = m
	}
	if found == nil {
		return nil, fmt.Errorf("%s %v: none", f.GetName(), labels)
	}
	return found, nil
}

// number is the value of the one series, and whether it has a time.
func number(families map[string]*dto.MetricFamily, name string, labels map[string]string) (value float64, timed bool, err error) {
	m, err := series(families[name], labels)
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", name, err)
	}
	return m.GetGauge().GetValue() + m.GetCounter().GetValue(), m.TimestampMs != nil, nil
}

// cgroup reads what a cgroup below the node's says it uses: CPU in seconds, and
// memory in bytes.
func (n *node) cgroup(name string) (cpu, memory float64, err error) {
	read := func(parts ...string) (text string) {
		data, failure := os.ReadFile(filepath.Join(append([]string{"/sys/fs/cgroup"}, parts...)...))
		err = errors.Join(err, failure)
		return strings.TrimSpace(string(data))
	}
	value := func(text string) float64 {
		v, failure := strconv.ParseFloat(text, 64)
		err = errors.Join(err, failure)
		return v
	}
	if _, failure := os.Stat("/sys/fs/cgroup/cgroup.controllers"); failure != nil { // version 1
		cpu = value(read("cpuacct", n.Runtime.CgroupRoot, name, "cpuacct.usage")) / 1e9
		return cpu, value(read("memory", n.Runtime.CgroupRoot, name, "memory.usage_in_bytes")), err
	}
	first, _, _ := strings.Cut(read(n.Runtime.CgroupRoot, name, "cpu.stat"), "\n")
	cpu = value(strings.TrimPrefix(first, "usage_usec ")) / 1e6
	return cpu, value(read(n.Runtime.CgroupRoot, name, "memory.current")), err
}

// holding is how much memory the pod holds.
const holding = 64 << 20

// measurements: a pod that burns CPU and holds memory shows up in the summary and
// in both pages of metrics with what its cgroup's own files say.
func measurements(e *env) {
	pod := e.pod("busy")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("900m"), "memory": resource.MustParse("256Mi")}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("10Mi")}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "idle", Image: images.Hello, Args: []string{"--http=:8081"}})
	pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	e.create(pod)
	pod = e.awaitRunning("busy", usual)
	e.post(pod, "/hold?bytes="+strconv.Itoa(holding))
	e.post(pod, "/burn?for=1s")
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	cgroup := filepath.Join("kubepods/burstable", "pod"+string(pod.UID), id)
	burnt, _, err := e.n.cgroup(cgroup)
	if err != nil {
		e.Fatal(err)
	}
	harness.Eventually(e, usual, "the summary", func(ctx context.Context) error {
		s, err := e.n.summary(ctx)
		if err != nil {
			return err
		}
		return e.checkSummary(s, pod, cgroup, burnt)
	})
	harness.Eventually(e, usual, "/metrics/cadvisor", func(ctx context.Context) error { return e.checkCAdvisor(ctx, pod, cgroup, burnt) })
	harness.Eventually(e, usual, "/metrics/resource", func(ctx context.Context) error { return e.checkResource(ctx, pod, burnt) })
	harness.Eventually(e, usual, "the size of logs", func(ctx context.Context) error {
		families, err := e.n.scrape(ctx, "/metrics")
		if err != nil {
			return err
		}
		size, _, err := number(families, "kubelet_container_log_filesystem_used_bytes",
			map[string]string{"namespace": e.ns, "pod": "busy", "container": "hello", "uid": string(pod.UID)})
		if err == nil && size == 0 {
			err = errors.New("no bytes")
		}
		return err
	})
	e.delete("busy", 0)
	e.awaitGone("busy", usual)
	harness.Eventually(e, usual, "the pod to be measured no more", func(ctx context.Context) error {
		s, err := e.n.summary(ctx)
		if err == nil && podOf(s, pod) != nil {
			err = errors.New("it still is")
		}
		return err
	})
}

func podOf(s *statsv1alpha1.Summary, pod *corev1.Pod) *statsv1alpha1.PodStats {
	for i := range s.Pods {
		if s.Pods[i].PodRef.UID == string(pod.UID) {
			return &s.Pods[i]
		}
	}
	return nil
}

// checkSummary compares the summary with the cgroup's files, read before and
// after it.
func (e *env) checkSummary(s *statsv1alpha1.Summary, pod *corev1.Pod, cgroup string, before float64) error {
	p := podOf(s, pod)
	switch {
	case s.Node.NodeName != e.n.Name || s.Node.CPU == nil || s.Node.Memory == nil || s.Node.Fs == nil || s.Node.Rlimit == nil:
		return fmt.Errorf("the node: %+v", s.Node)
	case s.Node.Runtime == nil || s.Node.Runtime.ImageFs == nil || *s.Node.Runtime.ImageFs.CapacityBytes == 0 || *s.Node.Runtime.ImageFs.UsedBytes == 0:
		return fmt.Errorf("its images: %+v", s.Node.Runtime)
	case p == nil || p.PodRef.Name != "busy" || p.PodRef.Namespace != e.ns:
		return fmt.Errorf("the pod: %+v", p)
	case len(p.Containers) != 2 || p.CPU == nil || p.Memory == nil || p.Network == nil || p.ProcessStats == nil || *p.ProcessStats.ProcessCount != 3:
		return fmt.Errorf("the pod: %+v", p)
	case p.Network.Name != "eth0" || *p.Network.RxBytes == 0:
		return fmt.Errorf("its network: %+v", p.Network)
	}
	c := p.Containers[0]
	switch {
	case c.Name != "hello" || c.CPU == nil || c.Memory == nil || c.Rootfs == nil || c.Logs == nil || c.StartTime.IsZero():
		return fmt.Errorf("the container: %+v", c)
	case c.CPU.UsageNanoCores == nil || s.Node.CPU.UsageNanoCores == nil:
		return errors.New("no rates yet")
	case *c.Logs.UsedBytes == 0 || *c.Logs.InodesUsed != 1 || *c.Rootfs.CapacityBytes == 0:
		return fmt.Errorf("its disks: %+v, %+v", c.Logs, c.Rootfs)
	}
	after, memory, err := e.n.cgroup(cgroup)
	if err != nil {
		return err
	}
	used, set := float64(*c.CPU.UsageCoreNanoSeconds)/1e9, *c.Memory.WorkingSetBytes
	if used < before || used > after {
		return fmt.Errorf("%v s of CPU, the cgroup says %v to %v", used, before, after)
	}
	if set < holding || float64(set) > 1.5*memory || *c.Memory.AvailableBytes+set != 256<<20 {
		return fmt.Errorf("%d bytes in the working set, %d available; the cgroup says %v", set, *c.Memory.AvailableBytes, memory)
	}
	if *p.CPU.UsageCoreNanoSeconds < *c.CPU.UsageCoreNanoSeconds || *p.Memory.WorkingSetBytes < set || *s.Node.Memory.WorkingSetBytes < set {
		return fmt.Errorf("less in the pod than in its container: %+v %+v", p.CPU, p.Memory)
	}
	for _, v := range p.VolumeStats {
		if v.Name == "scratch" && *v.InodesUsed == 1 && p.EphemeralStorage != nil && *p.EphemeralStorage.UsedBytes > 0 {
			return nil
		}
	}
	return fmt.Errorf("volumes: %+v, ephemeral storage: %+v", p.VolumeStats, p.EphemeralStorage)
}

func (e *env) checkCAdvisor(ctx context.Context, pod *corev1.Pod, cgroup string, burnt float64) error {
	families, err := e.n.scrape(ctx, "/metrics/cadvisor")
	if err != nil {
		return err
	}
	row := func(container string) map[string]string {
		return map[string]string{"namespace": e.ns, "pod": "busy", "container": container}
	}
	id := e.n.Runtime.CgroupRoot + "/" + cgroup
	for _, check := range []struct {
		name   string
		labels map[string]string
		least  float64
		most   float64
	}{
		{"container_cpu_usage_seconds_total", map[string]string{"id": id, "cpu": "total"}, burnt, 1e9},
		{"container_cpu_usage_seconds_total", row("hello"), burnt, 1e9},
		{"container_cpu_usage_seconds_total", map[string]string{"namespace": e.ns, "pod": "busy", "name": ""}, burnt, 1e9},
		{"container_memory_working_set_bytes", row("hello"), holding, 256 << 20},
		{"container_memory_rss", row("hello"), holding, 256 << 20},
		{"container_spec_memory_limit_bytes", row("hello"), 256 << 20, 256 << 20},
		{"container_spec_cpu_quota", row("hello"), 90000, 90000},
		{"container_cpu_cfs_periods_total", row("hello"), 1, 1e9},
		{"container_processes", row("hello"), 1, 1},
		{"container_file_descriptors", row("hello"), 3, 1000},
		{"container_ulimits_soft", row("hello"), 64, 1e12},
		{"container_start_time_seconds", row("hello"), float64(pod.CreationTimestamp.Unix()), float64(time.Now().Unix())},
		{"container_network_receive_bytes_total", row(""), 1, 1e12},
		{"container_memory_working_set_bytes", map[string]string{"id": "/"}, holding, 1e15},
		{"container_scrape_error", nil, 0, 0},
		{"machine_cpu_cores", nil, 1, 10000},
	} {
		value, _, err := number(families, check.name, check.labels)
		if err != nil {
			return err
		}
		if value < check.least || value > check.most {
			return fmt.Errorf("%s %v is %v, want %v to %v", check.name, check.labels, value, check.least, check.most)
		}
	}
	return nil
}

// checkResource reads what metrics-server reads: CPU and memory of the node and
// of every container with a time, and the start of each container.
func (e *env) checkResource(ctx context.Context, pod *corev1.Pod, burnt float64) error {
	families, err := e.n.scrape(ctx, "/metrics/resource")
	if err != nil {
		return err
	}
	get := func(name string, labels map[string]string) float64 {
		value, timed, failure := number(families, name, labels)
		if failure == nil && timed == (name == "container_start_time_seconds" || name == "resource_scrape_error") {
			failure = fmt.Errorf("%s: with a time: %v", name, timed)
		}
		err = errors.Join(err, failure)
		return value
	}
	whole := map[string]string{"namespace": e.ns, "pod": "busy"}
	var cpu, memory float64
	for _, c := range pod.Spec.Containers {
		one := map[string]string{"namespace": e.ns, "pod": "busy", "container": c.Name}
		cpu += get("container_cpu_usage_seconds_total", one)
		memory += get("container_memory_working_set_bytes", one)
		if start := get("container_start_time_seconds", one); start < float64(pod.CreationTimestamp.Unix()) {
			err = errors.Join(err, fmt.Errorf("%s started at %v", c.Name, start))
		}
		get("container_swap_usage_bytes", one)
	}
	if cpu < burnt || memory < holding || get("pod_cpu_usage_seconds_total", whole) < cpu*0.99 || get("pod_memory_working_set_bytes", whole) < memory*0.9 {
		err = errors.Join(err, fmt.Errorf("containers %v s and %v bytes, of which %v s were burnt; the pod has less", cpu, memory, burnt))
	}
	if get("node_cpu_usage_seconds_total", nil) <= 0 || get("node_memory_working_set_bytes", nil) < memory || get("resource_scrape_error", nil) != 0 {
		err = errors.Join(err, errors.New("the node has less than its pod, or says it failed"))
	}
	return err
}
