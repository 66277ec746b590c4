// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// Of the kubelet's reasons that no check gives: InvalidNodeInfo is for a kubelet that has
// no Node object and cannot make one up; here a pod waits for the Node object.
// PodLevelResourcesNotSupported is for a gate that is always on here. No kubelet 1.36 gives
// InitContainerRestartPolicyForbidden, which is left over from the gate SidecarContainers.

// release is the one whose features pods may need.
var release = version.MustParseSemantic(kubeletconfig.Release)

// features: the node declares what the pod needs of it (KEP-5328).
func features(p *v1.Pod, _ []*v1.Pod, node Node) *Rejection {
	if node.Features == nil {
		return nil
	}
	const reason = "PodFeatureUnsupported"
	needed, err := ndf.DefaultFramework.InferForPodScheduling(&ndf.PodInfo{Spec: &p.Spec, Status: &p.Status}, release)
	if err != nil {
		return refuse(reason, fmt.Sprintf("Failed to infer pod's feature requirements: %v", err))
	}
	missing, err := undeclared(needed, node.Features)
	switch {
	case err != nil:
		return refuse(reason, fmt.Sprintf("Failed to match pod's feature requirements against the node: %v", err))
	case missing != "":
		return refuse(reason, missing)
	}
	return nil
}

// UpdateNeeds says which features an update of a pod needs that the node does not declare,
// in the kubelet's words; empty for none. declared is nil where nodes declare none.
func UpdateNeeds(before, after *v1.Pod, declared []string) (string, error) {
	if declared == nil || len(before.Spec.InitContainers) != len(after.Spec.InitContainers) {
		return "", nil
	}
	needed, err := ndf.DefaultFramework.InferForPodUpdate(
		&ndf.PodInfo{Spec: &before.Spec, Status: &before.Status}, &ndf.PodInfo{Spec: &after.Spec, Status: &after.Status}, release)
	if err != nil {
		return "", err
	}
	return undeclared(needed, declared)
}

func undeclared(needed ndf.FeatureSet, declared []string) (string, error) {
	match, err := ndf.DefaultFramework.MatchNodeFeatureSet(needed, ndf.DefaultFramework.TryMap(declared))
	if err != nil || match.IsMatch {
		return "", err
	}
	return "Pod requires node features that are not available: " + strings.Join(match.UnsatisfiedRequirements, ", "), nil
}
