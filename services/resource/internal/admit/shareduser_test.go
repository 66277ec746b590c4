// SPDX-License-Identifier: Apache-2.0

package admit_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
)

func TestSharedUser(t *testing.T) {
	node := house.Identities{house.PodWorker: 64201, house.Prober: 64204, house.Config: 0}
	const end = ": they share its limits. Another runAsUser, or hostUsers: false, separates them."
	for spec, want := range map[string]string{
		"containers: [{name: c}]":                                                                                        "",
		"containers: [{name: c, securityContext: {runAsUser: 64300}}]":                                                   "",
		"containers: [{name: c, securityContext: {runAsUser: 0}}]":                                                       "",
		"{hostUsers: false, containers: [{name: c, securityContext: {runAsUser: 64201}}]}":                               "",
		"{securityContext: {runAsUser: 64201}, containers: [{name: c, securityContext: {runAsUser: 1000}}]}":             "",
		"{securityContext: {runAsUser: 64201}, initContainers: [{name: i}], containers: [{name: c}]}":                    "In this pod containers [i c] run as user 64201, which is that of the node's podworker" + end,
		"{hostUsers: true, containers: [{name: c}, {name: d, securityContext: {runAsUser: 64204}}]}":                     "In this pod containers [d] run as user 64204, which is that of the node's prober" + end,
		"{securityContext: {runAsUser: 64204}, containers: [{name: c}, {name: d, securityContext: {runAsUser: 64201}}]}": "In this pod containers [c] run as user 64204, which is that of the node's prober; containers [d] run as user 64201, which is that of the node's podworker" + end,
	} {
		p := &v1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			t.Fatal(err)
		}
		if got := admit.SharedUser(p, node); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", spec, got, want)
		}
	}
}
