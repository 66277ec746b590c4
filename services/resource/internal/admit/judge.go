// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Judge returns nil when p fits beside the pods that were admitted before it. The first
// reason of all checks is given, in the kubelet's order.
func Judge(p *v1.Pod, admitted []*v1.Pod, node Node) *Rejection {
	if r := Early(p, node); r != nil {
		return r
	}
	return Late(p, admitted, node)
}

type check func(*v1.Pod, []*v1.Pod, Node) *Rejection

// Early returns nil when nothing keeps p away that a kubelet looks at before it asks its
// resource managers. The order of the checks is the kubelet's: the first reason is given.
func Early(p *v1.Pod, node Node) *Rejection {
	return first(p, nil, node, []check{pressure, sysctls})
}

// Late returns nil when p fits beside the pods that were admitted before it, by what a
// kubelet looks at when its resource managers have admitted it. The order is the kubelet's.
// For a critical pod, resources are the last: others may be preempted for it, if that is all.
func Late(p *v1.Pod, admitted []*v1.Pod, node Node) *Rejection {
	checks := []check{operatingSystem, groups, fit, general, taints, appArmor, features}
	if pod.IsCritical(p) {
		checks = append(slices.Delete(checks, 2, 3), fit)
	}
	return first(p, admitted, node, checks)
}

func first(p *v1.Pod, admitted []*v1.Pod, node Node, checks []check) *Rejection {
	for _, check := range checks {
		if r := check(p, admitted, node); r != nil {
			return r
		}
	}
	return nil
}
