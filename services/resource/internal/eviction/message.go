// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Annotations of the event of an evicted pod.
const (
	offendingContainers      = "offending_containers"
	offendingContainersUsage = "offending_containers_usage"
	offendingPod             = "offending_pod"
	offendingPodUsage        = "offending_pod_usage"
	starvedResource          = "starved_resource"
)

// shortage says why a pod goes for the node's sake, and which of its containers use
// more than they asked for; available is the text of [short].
func shortage(p Pod, short v1.ResourceName, available string) (string, map[string]string) {
	message := fmt.Sprintf("The node was low on resource: %s. ", short) + available
	annotations := map[string]string{}
	if p.Usage == nil {
		return message, annotations
	}
	larger := func(what, name string, used *resource.Quantity, asked resource.Quantity) bool {
		if used == nil || used.Cmp(asked) <= 0 {
			return false
		}
		message += fmt.Sprintf("%s %s was using %s, request is %s, has larger consumption of %s. ", what, name, used, asked.String(), short)
		return true
	}
	if resourcehelper.IsPodLevelRequestsSet(p.Pod) && short == v1.ResourceMemory {
		if used := bytes(p.Usage.Memory); larger("Pod", p.Name, used, p.Spec.Resources.Requests[short]) {
			annotations[offendingPod], annotations[offendingPodUsage] = p.Name, used.String()
		}
	}
	var names, usages []string
	for _, u := range p.Usage.Containers {
		c := pod.FindDeclared(p.Pod, u.Name)
		if c == nil {
			continue
		}
		var used *resource.Quantity
		switch {
		case short == v1.ResourceMemory:
			used = bytes(u.Memory)
		case short == v1.ResourceEphemeralStorage && u.Root != nil && u.Logs != nil:
			used = bytes(new(u.Root.Bytes + u.Logs.Bytes))
		}
		if larger("Container", c.Name, used, c.Resources.Requests[short]) {
			names, usages = append(names, c.Name), append(usages, used.String())
		}
	}
	annotations[offendingContainers], annotations[offendingContainersUsage] = strings.Join(names, ","), strings.Join(usages, ",")
	annotations[starvedResource] = string(short)
	return message, annotations
}

func bytes(n *int64) *resource.Quantity {
	if n == nil {
		return nil
	}
	return resource.NewQuantity(*n, resource.BinarySI)
}
