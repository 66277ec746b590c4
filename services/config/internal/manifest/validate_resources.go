// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/downward"
)

func validateResources(path *field.Path, r *v1.ResourceRequirements) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		errs = append(errs, validateQuantity(path.Child("limits").Key(string(name)), name, r.Limits[name])...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		at := path.Child("requests").Key(string(name))
		request := r.Requests[name]
		errs = append(errs, validateQuantity(at, name, request)...)
		limit, limited := r.Limits[name]
		switch {
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(at, request.String(), "must be less than or equal to "+string(name)+" limit of "+limit.String()))
		case !overcommits(name) && (!limited || request.Cmp(limit) != 0):
			errs = append(errs, field.Invalid(at, request.String(), "must be equal to "+string(name)+" limit"))
		}
	}
	if hugePagesAlone(r) {
		errs = append(errs, field.Forbidden(path, "hugepages require cpu or memory"))
	}
	return errs
}

func hugePagesAlone(r *v1.ResourceRequirements) bool {
	huge := false
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			if name == v1.ResourceCPU || name == v1.ResourceMemory {
				return false
			}
			huge = huge || isHugePages(name)
		}
	}
	return huge
}

func validatePodResources(path *field.Path, s *v1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(s.Overhead)) {
		errs = append(errs, validateQuantity(path.Child("overhead").Key(string(name)), name, s.Overhead[name])...)
	}
	r := s.Resources
	if r == nil {
		return errs
	}
	at := path.Child("resources")
	errs = append(errs, validateResources(at, r)...)
	for part, list := range map[string]v1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !resourcehelper.IsSupportedPodLevelResource(name) {
				errs = append(errs, field.NotSupported(at.Child(part), name, []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceHugePagesPrefix + "*"}))
			}
		}
	}
	if len(r.Claims) > 0 {
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims cannot be set for pod-level resources"))
	}
	sums := resourcehelper.AggregateContainerRequests(&v1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, sum := r.Requests[name], sums[name]
		if request.Cmp(sum) < 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), request.String(), "must be greater than or equal to aggregate container requests of "+sum.String()))
		}
	}
	return errs
}

func validateQuantity(path *field.Path, name v1.ResourceName, q resource.Quantity) field.ErrorList {
	errs := invalid(path, name, validation.IsQualifiedName(string(name)))
	if !strings.Contains(string(name), "/") && !standard(name) {
		errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
	}
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be greater than or equal to 0"))
	}
	if size, ok := pod.HugePageSize(name); ok {
		if q.Value()%size.Value() != 0 {
			errs = append(errs, field.Invalid(path, q.String(), "must be a positive integer multiple of "+size.String()))
		}
	} else if isHugePages(name) {
		errs = append(errs, field.Invalid(path, name, "must name a page size"))
	}
	if !overcommits(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
	}
	return errs
}

func standard(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage || isHugePages(name)
}

// overcommits reports whether a limit may exceed the request.
func overcommits(name v1.ResourceName) bool {
	return standard(name) && !isHugePages(name) || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// validateFieldRef checks a downward API field; forEnv allows what only variables have.
func validateFieldRef(path *field.Path, f *v1.ObjectFieldSelector, forEnv bool) field.ErrorList {
	if f.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(path.Child("apiVersion"), f.APIVersion, "must be v1")}
	}
	if f.FieldPath == "" {
		return field.ErrorList{field.Required(path.Child("fieldPath"), "")}
	}
	var err error
	if forEnv {
		_, err = downward.Env(&v1.Pod{}, f, downward.Addresses{PodIPs: []string{"::"}, HostIPs: []string{"::"}})
		if f.FieldPath == "metadata.labels" || f.FieldPath == "metadata.annotations" {
			return field.ErrorList{field.Invalid(path.Child("fieldPath"), f.FieldPath, "needs a key in an environment variable: "+f.FieldPath+"['key']")}
		}
	} else {
		_, err = downward.Metadata(&v1.Pod{}, f.FieldPath)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child("fieldPath"), f.FieldPath, err.Error())}
	}
	return nil
}

func validateResourceFieldRef(path *field.Path, r *v1.ResourceFieldSelector, inVolume bool) field.ErrorList {
	if inVolume && r.ContainerName == "" {
		return field.ErrorList{field.Required(path.Child("containerName"), "")}
	}
	if r.Resource == "" {
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	}
	probe := *r
	probe.ContainerName = ""
	if _, err := downward.Resource(&v1.Pod{}, &v1.Container{}, &probe, nil); err != nil {
		return field.ErrorList{field.Invalid(path, r.Resource, err.Error())}
	}
	return nil
}
