// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Targets are the probes of a pod against the containers that run now.
// containers is the observed record, newest first.
func Targets(p *v1.Pod, containers []*runtimeapi.ContainerStatus) []Target {
	newest := map[string]*runtimeapi.ContainerStatus{}
	for _, c := range containers {
		name := c.GetMetadata().GetName()
		if had := newest[name]; had == nil || c.GetMetadata().GetAttempt() > had.GetMetadata().GetAttempt() {
			newest[name] = c
		}
	}
	var targets []Target
	add := func(c *v1.Container) {
		status := newest[c.Name]
		if status.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			return
		}
		for kind, spec := range map[Kind]*v1.Probe{Startup: c.StartupProbe, Liveness: c.LivenessProbe, Readiness: c.ReadinessProbe} {
			// A pod on its way out is not restarted (kubelet: liveness and startup
			// probes stop when termination starts); its readiness still counts.
			if spec == nil || p.DeletionTimestamp != nil && kind != Readiness {
				continue
			}
			targets = append(targets, Target{
				Key:         Key{string(p.UID), c.Name, kind},
				ContainerID: status.GetId(),
				Started:     time.Unix(0, status.GetStartedAt()),
				Spec:        *spec,
			})
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return targets
}
