// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Limited reports whether a pod has limits of its own on the node's disk.
func Limited(p *v1.Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0 {
			return true
		}
	}
	_, ok := pod.Limits(p)[v1.ResourceEphemeralStorage]
	return ok
}

// overLimits are all pods that use more of the node's disk than limits of their own
// allow: an emptyDir's size, the sum of containers' limits, or a container's limit.
func overLimits(in Input) []Verdict {
	var all []Verdict
	for _, p := range in.Pods {
		if p.Usage == nil || pod.IsCritical(p.Pod) {
			continue
		}
		for _, over := range []func(Pod, Layout) (message, signal string){overEmptyDir, overPod, overContainer} {
			if message, signal := over(p, in.Config.Layout); signal != "" {
				all = append(all, Verdict{Pod: p.Pod, Signal: signal, Message: message, Grace: immediate})
				break
			}
		}
	}
	return all
}

// overEmptyDir goes for volumes in memory, too.
func overEmptyDir(p Pod, _ Layout) (message, signal string) {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		if used, ok := p.Usage.Volumes[v.Name]; ok && v.EmptyDir.SizeLimit.CmpInt64(used.Bytes) < 0 {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit), EmptyDirLimit
		}
	}
	return "", ""
}

// overPod: a limit of one container bounds all that the pod takes.
func overPod(p Pod, _ Layout) (message, signal string) {
	limit, ok := pod.Limits(p.Pod)[v1.ResourceEphemeralStorage]
	used := onDisk(p, parts{root: true, logs: true, volumes: true}).plus(p.Usage.Other)
	if !ok || limit.CmpInt64(used.Bytes) >= 0 {
		return "", ""
	}
	return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String()), PodLimit
}

func overContainer(p Pod, layout Layout) (message, signal string) {
	for _, u := range p.Usage.Containers {
		for _, c := range p.Spec.Containers {
			limit, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]
			if !ok || c.Name != u.Name || limit.IsZero() {
				continue
			}
			var used int64
			if u.Logs != nil {
				used = u.Logs.Bytes
			}
			if u.Root != nil && layout != Dedicated && layout != "" {
				used += u.Root.Bytes
			}
			if limit.CmpInt64(used) < 0 {
				return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String()), ContainerLimit
			}
		}
	}
	return "", ""
}

// immediate is the grace, in seconds, of a pod that goes at once.
const immediate = 1
