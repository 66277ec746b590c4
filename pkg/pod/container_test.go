// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestUsedVolumes(t *testing.T) {
	mounts := func(name string) []v1.VolumeMount { return []v1.VolumeMount{{Name: name}, {Name: "unknown"}} }
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i", VolumeMounts: mounts("init")}},
		Containers:     []v1.Container{{Name: "c", VolumeMounts: mounts("main")}, {Name: "d", VolumeDevices: []v1.VolumeDevice{{Name: "device"}}}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
			Name: "e", VolumeMounts: mounts("ephemeral"),
		}}},
	}}
	for _, name := range []string{"device", "unused", "main", "ephemeral", "init"} {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name})
	}
	var got string
	for _, v := range UsedVolumes(p) {
		got += v.Name + " "
	}
	if got != "device main ephemeral init " || len(p.Spec.Volumes) != 5 {
		t.Errorf("used: %sof %d", got, len(p.Spec.Volumes))
	}
}
