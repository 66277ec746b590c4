// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Label is the SELinux label that a volume is mounted with, so that the runtime need not
// label each file: that of all containers that mount it, if the pod does not ask for the
// runtime's way, and one pod only has the volume or the gate SELinuxMount is on (KEP-1710).
// Empty for none. Containers with different labels cannot share such a volume.
func Label(p *v1.Pod, v *v1.Volume, exclusive bool, o Objects) (string, error) {
	if c := p.Spec.SecurityContext; c != nil && c.SELinuxChangePolicy != nil && *c.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
		return "", nil
	}
	if !exclusive {
		if on, err := o.Gate("SELinuxMount"); err != nil || !on {
			return "", err
		}
	}
	var labels []string
	for kind, c := range pod.Containers(p) {
		// An ephemeral container comes later, to what is mounted by then.
		if kind == pod.Ephemeral || !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			continue
		}
		context := pod.EffectiveSecurityContext(p, c)
		if context.Privileged != nil && *context.Privileged {
			context.SELinuxOptions = nil // it may use files of any label
		}
		label, err := o.FileLabel(context.SELinuxOptions)
		if err != nil {
			return "", fmt.Errorf("SELinux label of container %s: %w", c.Name, err)
		}
		if !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	switch len(labels) {
	case 0:
		return "", nil
	case 1:
		return labels[0], nil
	}
	return "", fmt.Errorf("volume %s is mounted by containers with different SELinux labels: %q", v.Name, labels)
}
