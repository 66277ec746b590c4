// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Validate checks a defaulted pod by the API server's rules, as far as they guard what
// the node does with it: names, references inside the pod, values of enumerations,
// ranges, and that exactly one of several alternatives is chosen. What it accepts the API
// server might still refuse as a mirror pod; what it refuses cannot run.
func Validate(p *v1.Pod) field.ErrorList {
	errs := validateMeta(p)
	spec := field.NewPath("spec")
	s := &p.Spec
	volumes, more := validateVolumes(spec.Child("volumes"), s.Volumes)
	errs = append(errs, more...)
	if len(s.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "not allowed in a static pod"))
	}
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(spec.Child("containers"), "at least one container is needed"))
	}
	seen := sets.New[string]()
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		path := spec.Child("initContainers").Index(i)
		// Only regular containers share their host ports, as in the API server and a kubelet.
		v := containerValidator{pod: p, path: path, c: c, kind: pod.Init, volumes: volumes, names: seen, ports: sets.New[string]()}
		if pod.IsSidecar(c) {
			v.kind = pod.Sidecar
		}
		errs = append(errs, v.validate()...)
	}
	ports := sets.New[string]()
	for i := range s.Containers {
		v := containerValidator{pod: p, path: spec.Child("containers").Index(i), c: &s.Containers[i], kind: pod.Regular, volumes: volumes, names: seen, ports: ports}
		errs = append(errs, v.validate()...)
	}
	errs = append(errs, validateSpec(spec, p)...)
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

func validateMeta(p *v1.Pod) field.ErrorList {
	meta := field.NewPath("metadata")
	var errs field.ErrorList
	errs = append(errs, invalid(meta.Child("name"), p.Name, apimachineryvalidation.NameIsDNSSubdomain(p.Name, false))...)
	errs = append(errs, invalid(meta.Child("namespace"), p.Namespace, apimachineryvalidation.ValidateNamespaceName(p.Namespace, false))...)
	if p.Generation < 0 {
		errs = append(errs, field.Invalid(meta.Child("generation"), p.Generation, "must not be negative"))
	}
	// The UID becomes part of paths and cgroup names.
	if strings.ContainsAny(string(p.UID), "/\\_\x00") || strings.HasPrefix(string(p.UID), ".") || len(p.UID) > 128 {
		errs = append(errs, field.Invalid(meta.Child("uid"), p.UID, "must not hold slashes or underscores, start with a dot or be longer than 128 characters"))
	}
	errs = append(errs, metav1validation.ValidateLabels(p.Labels, meta.Child("labels"))...)
	errs = append(errs, apimachineryvalidation.ValidateAnnotations(p.Annotations, meta.Child("annotations"))...)
	return errs
}

func validateSpec(path *field.Path, p *v1.Pod) field.ErrorList {
	s := &p.Spec
	var errs field.ErrorList
	errs = append(errs, oneOf(path.Child("restartPolicy"), s.RestartPolicy,
		v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)...)
	errs = append(errs, oneOf(path.Child("dnsPolicy"), s.DNSPolicy,
		v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)...)
	if s.TerminationGracePeriodSeconds != nil && *s.TerminationGracePeriodSeconds < 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *s.TerminationGracePeriodSeconds, "must not be negative"))
	}
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > 1<<31-1) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d, "must be between 1 and 2147483647"))
	}
	if s.NodeName != "" {
		errs = append(errs, invalid(path.Child("nodeName"), s.NodeName, apimachineryvalidation.NameIsDNSSubdomain(s.NodeName, false))...)
	}
	for name, value := range map[string]string{"hostname": s.Hostname, "subdomain": s.Subdomain} {
		if value != "" {
			errs = append(errs, invalid(path.Child(name), value, validation.IsDNS1123Label(value))...)
		}
	}
	if s.HostnameOverride != nil {
		o := path.Child("hostnameOverride")
		errs = append(errs, invalid(o, *s.HostnameOverride, validation.IsDNS1123Subdomain(*s.HostnameOverride))...)
		if s.HostNetwork {
			errs = append(errs, field.Forbidden(o, "may not be set together with hostNetwork"))
		}
		if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
			errs = append(errs, field.Forbidden(o, "may not be set together with setHostnameAsFQDN"))
		}
	}
	for i, a := range s.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, validation.IsValidIP(at.Child("ip"), a.IP)...)
		for j, name := range a.Hostnames {
			errs = append(errs, invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	if s.PriorityClassName != "" {
		errs = append(errs, invalid(path.Child("priorityClassName"), s.PriorityClassName, apimachineryvalidation.NameIsDNSSubdomain(s.PriorityClassName, false))...)
	}
	errs = append(errs, validateDNS(path, s)...)
	errs = append(errs, validatePodSecurity(path.Child("securityContext"), p)...)
	for i := range s.Tolerations {
		errs = append(errs, validateToleration(path.Child("tolerations").Index(i), &s.Tolerations[i])...)
	}
	for name, value := range s.NodeSelector {
		errs = append(errs, invalid(path.Child("nodeSelector"), name, validation.IsQualifiedName(name))...)
		errs = append(errs, invalid(path.Child("nodeSelector").Key(name), value, validation.IsValidLabelValue(value))...)
	}
	for i, gate := range s.ReadinessGates {
		errs = append(errs, invalid(path.Child("readinessGates").Index(i).Child("conditionType"), gate.ConditionType, validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	if s.OS != nil {
		errs = append(errs, oneOf(path.Child("os", "name"), s.OS.Name, v1.Linux, v1.Windows)...)
	}
	if s.PreemptionPolicy != nil {
		errs = append(errs, oneOf(path.Child("preemptionPolicy"), *s.PreemptionPolicy, v1.PreemptLowerPriority, v1.PreemptNever)...)
	}
	errs = append(errs, validatePodResources(path, s)...)
	return errs
}

func validateDNS(path *field.Path, s *v1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	config := path.Child("dnsConfig")
	if s.DNSPolicy == v1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		errs = append(errs, field.Required(config.Child("nameservers"), "at least one is needed when dnsPolicy is None"))
	}
	if s.DNSConfig == nil {
		return errs
	}
	if n := len(s.DNSConfig.Nameservers); n > 3 {
		errs = append(errs, field.TooMany(config.Child("nameservers"), n, 3))
	}
	for i, ip := range s.DNSConfig.Nameservers {
		errs = append(errs, validation.IsValidIP(config.Child("nameservers").Index(i), ip)...)
	}
	if n := len(s.DNSConfig.Searches); n > 32 {
		errs = append(errs, field.TooMany(config.Child("searches"), n, 32))
	}
	if n := len(strings.Join(s.DNSConfig.Searches, " ")); n > 2048 {
		errs = append(errs, field.Invalid(config.Child("searches"), n, "must not have more than 2048 characters, blanks included"))
	}
	for i, o := range s.DNSConfig.Options {
		if o.Name == "" {
			errs = append(errs, field.Required(config.Child("options").Index(i).Child("name"), ""))
		}
	}
	return errs
}

func validateToleration(path *field.Path, t *v1.Toleration) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, invalid(path.Child("key"), t.Key, validation.IsQualifiedName(t.Key))...)
	} else if t.Operator != v1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator, "must be Exists when key is empty"))
	}
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set"))
	}
	switch t.Operator {
	case "", v1.TolerationOpEqual:
		errs = append(errs, invalid(path.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	case v1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty when operator is Exists"))
		}
	case v1.TolerationOpLt, v1.TolerationOpGt:
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), t.Operator, []v1.TolerationOperator{v1.TolerationOpEqual, v1.TolerationOpExists}))
	}
	if t.Effect != "" {
		errs = append(errs, oneOf(path.Child("effect"), t.Effect, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)...)
	}
	return errs
}
