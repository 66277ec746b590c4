// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sextant-node/sextant/pkg/pattern"
)

var sysctlName = pattern.Lazy(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func validatePodSecurity(at *field.Path, p *v1.Pod) field.ErrorList {
	s := &p.Spec
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if s.ShareProcessNamespace != nil && *s.ShareProcessNamespace && s.HostPID {
		errs = append(errs, field.Invalid(spec.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if s.HostUsers != nil && !*s.HostUsers {
		for name, set := range map[string]bool{"hostNetwork": s.HostNetwork, "hostPID": s.HostPID, "hostIPC": s.HostIPC} {
			if set {
				errs = append(errs, field.Forbidden(spec.Child(name), "when hostUsers is false"))
			}
		}
	}
	sc := s.SecurityContext
	if sc == nil {
		return errs
	}
	errs = append(errs, userID(at.Child("runAsUser"), sc.RunAsUser)...)
	errs = append(errs, userID(at.Child("runAsGroup"), sc.RunAsGroup)...)
	errs = append(errs, userID(at.Child("fsGroup"), sc.FSGroup)...)
	for i := range sc.SupplementalGroups {
		errs = append(errs, userID(at.Child("supplementalGroups").Index(i), &sc.SupplementalGroups[i])...)
	}
	if sc.SupplementalGroupsPolicy != nil {
		errs = append(errs, oneOf(at.Child("supplementalGroupsPolicy"), *sc.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)...)
	}
	if sc.FSGroupChangePolicy != nil {
		errs = append(errs, oneOf(at.Child("fsGroupChangePolicy"), *sc.FSGroupChangePolicy, v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch)...)
	}
	seen := map[string]bool{}
	for i, sysctl := range sc.Sysctls {
		name := at.Child("sysctls").Index(i).Child("name")
		switch {
		case sysctl.Name == "":
			errs = append(errs, field.Required(name, ""))
		case len(sysctl.Name) > 253 || !sysctlName().MatchString(sysctl.Name):
			errs = append(errs, field.Invalid(name, sysctl.Name, "must have at most 253 characters and consist of lower case words joined by dots or slashes"))
		case seen[sysctl.Name]:
			errs = append(errs, field.Duplicate(name, sysctl.Name))
		}
		seen[sysctl.Name] = true
	}
	errs = append(errs, seccomp(at.Child("seccompProfile"), sc.SeccompProfile)...)
	return append(errs, appArmor(at.Child("appArmorProfile"), sc.AppArmorProfile)...)
}

func validateSecurity(at *field.Path, sc *v1.SecurityContext, p *v1.Pod) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, userID(at.Child("runAsUser"), sc.RunAsUser)...)
	errs = append(errs, userID(at.Child("runAsGroup"), sc.RunAsGroup)...)
	errs = append(errs, seccomp(at.Child("seccompProfile"), sc.SeccompProfile)...)
	errs = append(errs, appArmor(at.Child("appArmorProfile"), sc.AppArmorProfile)...)
	if m := sc.ProcMount; m != nil {
		errs = append(errs, oneOf(at.Child("procMount"), *m, v1.DefaultProcMount, v1.UnmaskedProcMount)...)
		if *m == v1.UnmaskedProcMount && (p.Spec.HostUsers == nil || *p.Spec.HostUsers) {
			errs = append(errs, field.Invalid(at.Child("procMount"), *m, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	if e := sc.AllowPrivilegeEscalation; e != nil && !*e {
		if sc.Privileged != nil && *sc.Privileged {
			errs = append(errs, field.Invalid(at, sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if sc.Capabilities != nil {
			for _, capability := range sc.Capabilities.Add {
				if capability == "CAP_SYS_ADMIN" {
					errs = append(errs, field.Invalid(at, sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
				}
			}
		}
	}
	return errs
}

func userID(at *field.Path, id *int64) field.ErrorList {
	if id == nil {
		return nil
	}
	return invalid(at, *id, validation.IsValidUserID(*id))
}

func seccomp(at *field.Path, p *v1.SeccompProfile) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(at.Child("type"), p.Type, v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	switch {
	case p.Type == v1.SeccompProfileTypeLocalhost && (p.LocalhostProfile == nil || *p.LocalhostProfile == ""):
		errs = append(errs, field.Required(local, "must be set when seccomp type is Localhost"))
	case p.Type == v1.SeccompProfileTypeLocalhost:
		errs = append(errs, localPath(local, *p.LocalhostProfile)...)
	case p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

func appArmor(at *field.Path, p *v1.AppArmorProfile) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(at.Child("type"), p.Type, v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	switch {
	case p.Type == v1.AppArmorProfileTypeLocalhost && (p.LocalhostProfile == nil || strings.TrimSpace(*p.LocalhostProfile) == ""):
		errs = append(errs, field.Required(local, "must be set when AppArmor type is Localhost"))
	case p.Type != v1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "can only be set when AppArmor type is Localhost"))
	}
	return errs
}
