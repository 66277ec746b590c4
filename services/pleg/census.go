// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// census counts what runs, by the newest reading of each pod. It is a
// prometheus.Collector.
type census struct {
	mu   sync.Mutex
	pods map[string]tally // by UID
}

// tally is one pod's part.
type tally struct {
	running    bool // a sandbox of it is ready
	containers map[runtimeapi.ContainerState]int
}

func newCensus() *census { return &census{pods: map[string]tally{}} }

// note takes a reading of a pod in; one of which nothing is left is forgotten.
func (c *census) note(uid string, sandboxes []*runtimeapi.PodSandboxStatus, containers []*runtimeapi.ContainerStatus) {
	t := tally{containers: map[runtimeapi.ContainerState]int{}}
	for _, s := range sandboxes {
		t.running = t.running || s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	for _, s := range containers {
		t.containers[s.GetState()]++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(sandboxes)+len(containers) == 0 {
		delete(c.pods, uid)
		return
	}
	c.pods[uid] = t
}

var (
	podsDesc       = prometheus.NewDesc("kubelet_running_pods", "Pods with a running sandbox.", nil, nil)
	containersDesc = prometheus.NewDesc("kubelet_running_containers", "Containers by state.", []string{"container_state"}, nil)
)

var stateNames = map[runtimeapi.ContainerState]string{
	runtimeapi.ContainerState_CONTAINER_CREATED: "created",
	runtimeapi.ContainerState_CONTAINER_RUNNING: "running",
	runtimeapi.ContainerState_CONTAINER_EXITED:  "exited",
	runtimeapi.ContainerState_CONTAINER_UNKNOWN: "unknown",
}

// Describe implements prometheus.Collector.
func (c *census) Describe(out chan<- *prometheus.Desc) { out <- podsDesc; out <- containersDesc }

// Collect implements prometheus.Collector.
func (c *census) Collect(out chan<- prometheus.Metric) {
	running, counts := 0, map[runtimeapi.ContainerState]int{}
	c.mu.Lock()
	for t := range maps.Values(c.pods) {
		if t.running {
			running++
		}
		for state, n := range t.containers {
			counts[state] += n
		}
	}
	c.mu.Unlock()
	out <- prometheus.MustNewConstMetric(podsDesc, prometheus.GaugeValue, float64(running))
	for state, name := range stateNames {
		out <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(counts[state]), name)
	}
}
