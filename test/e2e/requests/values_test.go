// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func field(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func amount(name, divisor string) *corev1.EnvVarSource {
	r := &corev1.ResourceFieldSelector{Resource: name}
	if divisor != "" {
		r.Divisor = resource.MustParse(divisor)
	}
	return &corev1.EnvVarSource{ResourceFieldRef: r}
}

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// env gives a container variables of all kinds; some of them refer to what is not there.
func (m *maker) env(c *corev1.Container, s *corev1.PodSpec) {
	all := []corev1.EnvVar{
		{Name: "PLAIN", Value: "value"}, {Name: "EMPTY"}, {Name: "CHAIN", Value: "$(PLAIN)-$(LATER)-$$(PLAIN)"}, {Name: "LATER", Value: "$(CHAIN)"},
		{Name: "HOME", Value: "/home/$(POD_NAME)"}, {Name: "dotted.name", Value: "x"}, {Name: "PLAIN", Value: "again $(PLAIN)"},
		{Name: "POD_NAME", ValueFrom: field("metadata.name")}, {Name: "POD_NAMESPACE", ValueFrom: field("metadata.namespace")},
		{Name: "POD_UID", ValueFrom: field("metadata.uid")}, {Name: "NODE", ValueFrom: field("spec.nodeName")},
		{Name: "ACCOUNT", ValueFrom: field("spec.serviceAccountName")}, {Name: "HOST_IP", ValueFrom: field("status.hostIP")},
		{Name: "HOST_IPS", ValueFrom: field("status.hostIPs")}, {Name: "POD_IP", ValueFrom: field("status.podIP")},
		{Name: "POD_IPS", ValueFrom: field("status.podIPs")}, {Name: "LABEL", ValueFrom: field("metadata.labels['quoted']")},
		{Name: "NO_LABEL", ValueFrom: field("metadata.labels['none']")}, {Name: "ANNOTATION", ValueFrom: field("metadata.annotations['note']")},
		{Name: "CPU_LIMIT", ValueFrom: amount("limits.cpu", "")}, {Name: "CPU_REQUEST", ValueFrom: amount("requests.cpu", "1m")},
		{Name: "MEMORY_LIMIT", ValueFrom: amount("limits.memory", "")}, {Name: "MEMORY_REQUEST", ValueFrom: amount("requests.memory", "1Mi")},
		{Name: "STORAGE_REQUEST", ValueFrom: amount("requests.ephemeral-storage", "")},
		{Name: "FROM_MAP", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("settings"), Key: "one"}}},
		{Name: "NO_MAP", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("none"), Key: "one", Optional: new(true)}}},
		{Name: "NO_KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("secrets"), Key: "none", Optional: new(true)}}},
		{Name: "FROM_SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("secrets"), Key: "password"}}},
	}
	for _, v := range all {
		if m.one(5) {
			c.Env = append(c.Env, v)
		}
	}
	if m.one(40) {
		c.Env = append(c.Env, corev1.EnvVar{Name: "BROKEN", ValueFrom: pick(m,
			&corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("none"), Key: "one"}},
			&corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("secrets"), Key: "none"}})})
	}
	if m.one(5) {
		c.EnvFrom = some(m,
			corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("settings")}},
			corev1.EnvFromSource{Prefix: "P_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("secrets")}},
			corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("none"), Optional: new(true)}},
			corev1.EnvFromSource{Prefix: "0-", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("settings")}})
	}
	if m.one(40) {
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("none")}})
	}
}

// volumes gives a pod volumes of the kinds that need nothing but the node.
func (m *maker) volumes(p *corev1.Pod) {
	mode := func() *int32 { return maybe(m, 3, pick(m, int32(0o400), int32(0o644), int32(0o440), int32(0o777))) }
	items := func(keys ...string) (all []corev1.KeyToPath) {
		if m.one(2) {
			return nil
		}
		for _, k := range some(m, keys...) {
			all = append(all, corev1.KeyToPath{Key: k, Path: pick(m, k, "deep/"+k), Mode: mode()})
		}
		return all
	}
	fields := func() (all []corev1.DownwardAPIVolumeFile) {
		all = some(m,
			corev1.DownwardAPIVolumeFile{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}, Mode: mode()},
			corev1.DownwardAPIVolumeFile{Path: "deep/annotations", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}},
			corev1.DownwardAPIVolumeFile{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}, Mode: mode()},
			corev1.DownwardAPIVolumeFile{Path: "memory", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "main-0", Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}})
		return all
	}
	settings := &corev1.ConfigMapVolumeSource{LocalObjectReference: local("settings"), DefaultMode: mode(), Items: items("one", "two")}
	secrets := &corev1.SecretVolumeSource{SecretName: "secrets", DefaultMode: mode(), Items: items("password", "binary")}
	projected := &corev1.ProjectedVolumeSource{DefaultMode: mode(), Sources: some(m,
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("settings"), Items: items("one", "two")}},
		corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: local("secrets"), Items: items("password")}},
		corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: fields()}},
		corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: pick(m, "", "someone")}},
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("none"), Optional: new(true)}})}
	memory := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
	if m.one(2) {
		memory.SizeLimit = new(resource.MustParse(pick(m, "1Mi", "20Mi", "3000")))
	}
	host := func(name string, kind corev1.HostPathType) corev1.VolumeSource {
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(m.dir, name), Type: &kind}}
	}
	sources := []corev1.VolumeSource{
		{ConfigMap: settings}, {Secret: secrets}, {Projected: projected}, {EmptyDir: memory}, {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: mode(), Items: fields()}},
		host("there", corev1.HostPathDirectory), host("made-"+p.Name+"/deep", corev1.HostPathDirectoryOrCreate), host("file", corev1.HostPathFile), host("there", corev1.HostPathUnset),
		{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("none"), Optional: new(true)}},
		{Image: &corev1.ImageVolumeSource{Reference: fmt.Sprintf("sextant.local/volume-%d:v1", m.number), PullPolicy: pick(m, corev1.PullIfNotPresent, corev1.PullAlways)}},
	}
	if m.one(40) {
		sources = append(sources, pick(m, host("none", corev1.HostPathDirectory), host("there", corev1.HostPathFile),
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none"}},
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("settings"), Items: []corev1.KeyToPath{{Key: "none", Path: "none"}}}}))
	}
	for i, source := range sources {
		if m.one(4) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", i), VolumeSource: source})
		}
	}
}

// mounts mounts some volumes of the pod.
func (m *maker) mounts(c *corev1.Container, s *corev1.PodSpec) {
	for i, v := range s.Volumes {
		if m.one(3) {
			continue
		}
		mount := corev1.VolumeMount{Name: v.Name, MountPath: fmt.Sprintf("/mnt/%s", v.Name), ReadOnly: m.one(3)}
		folder := v.EmptyDir != nil || v.HostPath != nil && *v.HostPath.Type != corev1.HostPathFile
		switch {
		case folder && m.one(4):
			mount.SubPath = pick(m, "a", "a/b", "..c")
		case folder && m.one(5):
			mount.SubPathExpr = pick(m, "$(POD_NAME)", "x/$(PLAIN)", "$(NONE)", "$$(PLAIN)")
		}
		if mount.ReadOnly && m.one(3) && mount.SubPath == "" && mount.SubPathExpr == "" {
			mount.RecursiveReadOnly = new(pick(m, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyDisabled))
		}
		if m.one(5) && (mount.RecursiveReadOnly == nil || *mount.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled) {
			mount.MountPropagation = new(pick(m, corev1.MountPropagationNone, corev1.MountPropagationHostToContainer))
		}
		c.VolumeMounts = append(c.VolumeMounts, mount)
		if i == 0 && m.one(5) {
			twice := mount
			twice.MountPath += "-again"
			c.VolumeMounts = append(c.VolumeMounts, twice)
		}
	}
}
