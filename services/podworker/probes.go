// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/lru"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/env"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// knownContainers is how many containers probeRights remember.
const knownContainers = 4096

// probeRights decide which commands prober may run. Safe for concurrent use.
type probeRights struct {
	pods       *feed.Replica[*step.Desired]
	containers *lru.Cache // pod.ContainerInfo by id, of those that were probed by a command
}

// mayProbe implements broker.Deps.MayProbe. The runtime says once which container it is:
// prober may have seen one in pleg's records before they are here, and labels of a
// container never change.
func (r *probeRights) mayProbe(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, containerID string, command []string) error {
	found, ok := r.containers.Get(containerID)
	if !ok {
		resp, err := runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: containerID})
		if err != nil {
			return err
		}
		info, err := pod.ParseContainer(resp.GetStatus().GetLabels(), nil)
		if err != nil {
			return rpc.Denied.Errorf("container %s has no probes: %w", containerID, err)
		}
		r.containers.Add(containerID, info)
		found = info
	}
	info := found.(pod.ContainerInfo)
	uid := string(info.Pod.UID)
	desired, ok, known := r.pods.Lookup(uid)
	switch {
	case !ok && !known:
		return rpc.Unavailable.Errorf("pod %s/%s (%s) is not known yet", info.Pod.Namespace, info.Pod.Name, uid)
	case !ok || !isProbe(desired.Pod, info.Name, command):
		return rpc.Denied.Errorf("%q is no probe of container %s in pod %s/%s (%s)", command, info.Name, info.Pod.Namespace, info.Pod.Name, uid)
	}
	return nil
}

// isProbe reports whether a command is an exec probe of a pod's container.
func isProbe(p *v1.Pod, container string, command []string) bool {
	for _, c := range pod.Containers(p) {
		if c.Name != container {
			continue
		}
		for _, probe := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe == nil || probe.Exec == nil {
				continue
			}
			if expanded, err := env.ProbeCommand(probe.Exec, c); err == nil && slices.Equal(expanded, command) {
				return true
			}
		}
	}
	return false
}
