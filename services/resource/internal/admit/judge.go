// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Judge returns nil when p fits beside the pods that were admitted before it.
// The order of the checks is the kubelet's: the first reason found is given. For a
// critical pod, resources are the last: others may be preempted for it, if that is all.
func Judge(p *v1.Pod, admitted []*v1.Pod, node Node) *Rejection {
	checks := []func(*v1.Pod, []*v1.Pod, Node) *Rejection{pressure, sysctls, operatingSystem, groups, fit, general, taints, appArmor, features}
	if pod.IsCritical(p) {
		checks = append(slices.Delete(checks, 4, 5), fit)
	}
	for _, check := range checks {
		if r := check(p, admitted, node); r != nil {
			return r
		}
	}
	return nil
}
