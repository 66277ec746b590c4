package manifest

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilsysctl "k8s.io/component-helpers/node/util/sysctl"
)

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
		case seen[utilsysctl.NormalizeName(sysctl.Name)]:
			errs = append(errs, field.Duplicate(name, sysctl.Name))
		}
		seen[utilsysctl.NormalizeName(sysctl.Name)] = true
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
	var errs field.ErrorList
	for _, problem := range validation.IsValidUserID(*id) {
		errs = append(errs, field.Invalid(at, *id, problem))
	}
	return errs
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

// validateVolumes checks the volumes and returns them by name.
func validateVolumes(at *field.Path, volumes []v1.Volume) (map[string]*v1.Volume, field.ErrorList) {
	byName := make(map[string]*v1.Volume, len(volumes))
	var errs field.ErrorList
	for i := range volumes {
		v := &volumes[i]
		path := at.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		} else {
			for _, problem := range validation.IsDNS1123Label(v.Name) {
				errs = append(errs, field.Invalid(path.Child("name"), v.Name, problem))
			}
		}
		if byName[v.Name] != nil {
			errs = append(errs, field.Duplicate(path.Child("name"), v.Name))
		}
		byName[v.Name] = v
		errs = append(errs, validateVolume(path, v)...)
	}
	return byName, errs
}

func validateVolume(at *field.Path, v *v1.Volume) field.ErrorList {
	var errs field.ErrorList
	if n := sources(v); n > 1 {
		errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type"))
	}
	if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("emptyDir", "sizeLimit"), e.SizeLimit.String(), "must not be negative"))
	}
	if h := v.HostPath; h != nil {
		p := at.Child("hostPath")
		if h.Path == "" {
			errs = append(errs, field.Required(p.Child("path"), ""))
		}
		for part := range strings.SplitSeq(h.Path, "/") {
			if part == ".." {
				errs = append(errs, field.Invalid(p.Child("path"), h.Path, "must not contain '..'"))
				break
			}
		}
		if h.Type != nil && *h.Type != v1.HostPathUnset {
			errs = append(errs, oneOf(p.Child("type"), *h.Type, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory,
				v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)...)
		}
	}
	if d := v.DownwardAPI; d != nil {
		errs = append(errs, mode(at.Child("downwardAPI", "defaultMode"), d.DefaultMode)...)
		errs = append(errs, validateDownward(at.Child("downwardAPI", "items"), d.Items)...)
	}
	if p := v.Projected; p != nil {
		errs = append(errs, mode(at.Child("projected", "defaultMode"), p.DefaultMode)...)
		for i := range p.Sources {
			if d := p.Sources[i].DownwardAPI; d != nil {
				errs = append(errs, validateDownward(at.Child("projected", "sources").Index(i).Child("downwardAPI", "items"), d.Items)...)
			}
		}
	}
	if v.GitRepo != nil {
		errs = append(errs, field.Forbidden(at.Child("gitRepo"), "gitRepo volumes are no longer supported"))
	}
	if v.Image != nil && v.Image.Reference == "" {
		errs = append(errs, field.Required(at.Child("image", "reference"), ""))
	}
	return errs
}

func validateDownward(at *field.Path, items []v1.DownwardAPIVolumeFile) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		item, path := &items[i], at.Index(i)
		if item.Path == "" {
			errs = append(errs, field.Required(path.Child("path"), ""))
		}
		errs = append(errs, localPath(path.Child("path"), item.Path)...)
		if strings.HasPrefix(cleanPath(item.Path), "..") {
			errs = append(errs, field.Invalid(path.Child("path"), item.Path, "must not start with '..'"))
		}
		errs = append(errs, mode(path.Child("mode"), item.Mode)...)
		errs = append(errs, exactlyOne(path, map[string]bool{"fieldRef": item.FieldRef != nil, "resourceFieldRef": item.ResourceFieldRef != nil})...)
		if item.FieldRef != nil {
			errs = append(errs, validateFieldRef(path.Child("fieldRef"), item.FieldRef, false)...)
		}
		if item.ResourceFieldRef != nil {
			errs = append(errs, validateResourceFieldRef(path.Child("resourceFieldRef"), item.ResourceFieldRef, true)...)
		}
	}
	return errs
}

func cleanPath(p string) string { return path.Clean(p) }

func mode(at *field.Path, m *int32) field.ErrorList {
	if m == nil {
		return nil
	}
	return inRange(at, int64(*m), 0, 0o777)
}
