// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sextant-node/sextant/pkg/pod"
)

// containerValidator checks one container against its pod.
type containerValidator struct {
	pod  *v1.Pod
	path *field.Path
	c    *v1.Container
	kind pod.ContainerKind
	// volumes of the pod by name.
	volumes map[string]*v1.Volume
	// names of containers, and host ports, seen so far where they must differ.
	names, ports sets.Set[string]
	errs         field.ErrorList
}

func (v *containerValidator) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

func (v *containerValidator) validate() field.ErrorList {
	c := v.c
	if c.Name == "" {
		v.add(field.Required(v.path.Child("name"), ""))
	} else if v.names.Has(c.Name) {
		v.add(field.Duplicate(v.path.Child("name"), c.Name))
	} else {
		v.add(invalid(v.path.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	v.names.Insert(c.Name)
	switch {
	case c.Image == "":
		v.add(field.Required(v.path.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		v.add(field.Invalid(v.path.Child("image"), c.Image, "must not have leading or trailing white space"))
	}
	v.add(oneOf(v.path.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	v.add(oneOf(v.path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	v.portList()
	v.environment()
	v.mounts()
	v.restartRules()
	v.add(validateProbes(v.path, v.c, v.kind, v.pod)...)
	v.add(validateResources(v.path.Child("resources"), &c.Resources)...)
	if c.SecurityContext != nil {
		v.add(validateSecurity(v.path.Child("securityContext"), c.SecurityContext, v.pod)...)
	}
	return v.errs
}

func (v *containerValidator) portList() {
	names := sets.New[string]()
	for i, p := range v.c.Ports {
		at := v.path.Child("ports").Index(i)
		if p.Name != "" {
			v.add(invalid(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			if names.Has(p.Name) {
				v.add(field.Duplicate(at.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		}
		if p.ContainerPort == 0 {
			v.add(field.Required(at.Child("containerPort"), ""))
		} else {
			v.add(inRange(at.Child("containerPort"), int64(p.ContainerPort), 1, 65535)...)
		}
		v.add(inRange(at.Child("hostPort"), int64(p.HostPort), 0, 65535)...)
		if v.pod.Spec.HostNetwork && p.HostPort != p.ContainerPort {
			v.add(field.Invalid(at.Child("hostPort"), p.HostPort, "must match containerPort when hostNetwork is true"))
		}
		v.add(oneOf(at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
		if p.HostPort != 0 {
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if v.ports.Has(key) {
				v.add(field.Duplicate(at.Child("hostPort"), key))
			}
			v.ports.Insert(key)
		}
	}
}

func (v *containerValidator) environment() {
	for i, e := range v.c.Env {
		at := v.path.Child("env").Index(i)
		if e.Name == "" {
			v.add(field.Required(at.Child("name"), ""))
		} else {
			v.add(invalid(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
		}
		if e.ValueFrom == nil {
			continue
		}
		from := at.Child("valueFrom")
		if e.Value != "" {
			v.add(field.Invalid(from, "", "may not be specified when value is not empty"))
		}
		v.add(exactlyOne(from, map[string]bool{
			"fieldRef": e.ValueFrom.FieldRef != nil, "resourceFieldRef": e.ValueFrom.ResourceFieldRef != nil,
			"configMapKeyRef": e.ValueFrom.ConfigMapKeyRef != nil, "secretKeyRef": e.ValueFrom.SecretKeyRef != nil,
			"fileKeyRef": e.ValueFrom.FileKeyRef != nil,
		})...)
		if f := e.ValueFrom.FieldRef; f != nil {
			v.add(validateFieldRef(from.Child("fieldRef"), f, true)...)
		}
		if r := e.ValueFrom.ResourceFieldRef; r != nil {
			v.add(validateResourceFieldRef(from.Child("resourceFieldRef"), r, false)...)
		}
		if f := e.ValueFrom.FileKeyRef; f != nil && v.volumes[f.VolumeName] == nil {
			v.add(field.NotFound(from.Child("fileKeyRef", "volumeName"), f.VolumeName))
		}
	}
	for i, f := range v.c.EnvFrom {
		v.add(exactlyOne(v.path.Child("envFrom").Index(i), map[string]bool{
			"configMapRef": f.ConfigMapRef != nil, "secretRef": f.SecretRef != nil,
		})...)
	}
}

func (v *containerValidator) mounts() {
	seen := sets.New[string]()
	for i, m := range v.c.VolumeMounts {
		at := v.path.Child("volumeMounts").Index(i)
		if m.Name == "" {
			v.add(field.Required(at.Child("name"), ""))
		} else if v.volumes[m.Name] == nil {
			v.add(field.NotFound(at.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			v.add(field.Required(at.Child("mountPath"), ""))
		} else if seen.Has(m.MountPath) {
			v.add(field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		seen.Insert(m.MountPath)
		v.add(localPath(at.Child("subPath"), m.SubPath)...)
		v.add(localPath(at.Child("subPathExpr"), m.SubPathExpr)...)
		if m.SubPath != "" && m.SubPathExpr != "" {
			v.add(field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		if m.MountPropagation != nil {
			v.add(oneOf(at.Child("mountPropagation"), *m.MountPropagation, v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)...)
			sc := v.c.SecurityContext
			if *m.MountPropagation == v1.MountPropagationBidirectional && (sc == nil || sc.Privileged == nil || !*sc.Privileged) {
				v.add(field.Forbidden(at.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers"))
			}
		}
		if r := m.RecursiveReadOnly; r != nil {
			v.add(oneOf(at.Child("recursiveReadOnly"), *r, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)...)
			if *r != v1.RecursiveReadOnlyDisabled && !m.ReadOnly {
				v.add(field.Forbidden(at.Child("recursiveReadOnly"), "may only be specified when readOnly is true"))
			}
		}
	}
	for i, d := range v.c.VolumeDevices {
		at := v.path.Child("volumeDevices").Index(i)
		if v.volumes[d.Name] == nil {
			v.add(field.NotFound(at.Child("name"), d.Name))
		}
		if d.DevicePath == "" {
			v.add(field.Required(at.Child("devicePath"), ""))
		} else if seen.Has(d.DevicePath) {
			v.add(field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		}
		seen.Insert(d.DevicePath)
	}
}

func (v *containerValidator) restartRules() {
	c := v.c
	if p := c.RestartPolicy; p != nil {
		v.add(oneOf(v.path.Child("restartPolicy"), *p, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)...)
	} else if len(c.RestartPolicyRules) > 0 {
		v.add(field.Required(v.path.Child("restartPolicy"), "must be set when restartPolicyRules is"))
	}
	if v.kind == pod.Sidecar && len(c.RestartPolicyRules) > 0 {
		for i := range c.RestartPolicyRules {
			if c.RestartPolicyRules[i].Action != v1.ContainerRestartRuleActionRestartAllContainers {
				v.add(field.Forbidden(v.path.Child("restartPolicyRules").Index(i), "a sidecar always restarts"))
			}
		}
	}
	if n := len(c.RestartPolicyRules); n > 20 {
		v.add(field.TooMany(v.path.Child("restartPolicyRules"), n, 20))
	}
	for i, r := range c.RestartPolicyRules {
		at := v.path.Child("restartPolicyRules").Index(i)
		v.add(oneOf(at.Child("action"), r.Action, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)...)
		if r.ExitCodes == nil {
			v.add(field.Required(at.Child("exitCodes"), ""))
			continue
		}
		v.add(oneOf(at.Child("exitCodes", "operator"), r.ExitCodes.Operator, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(r.ExitCodes.Values); n > 255 {
			v.add(field.TooMany(at.Child("exitCodes", "values"), n, 255))
		}
	}
}
