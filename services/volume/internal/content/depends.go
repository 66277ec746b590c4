package content

import (
	v1 "k8s.io/api/core/v1"
)

// Depends tells whether the files of a pod are made of an API object.
func Depends(p *v1.Pod, kind, namespace, name string) bool {
	if namespace != p.Namespace {
		return false
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		switch {
		case v.ConfigMap != nil && kind == "ConfigMap" && v.ConfigMap.Name == name,
			v.Secret != nil && kind == "Secret" && v.Secret.SecretName == name:
			return true
		case v.Projected == nil:
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil && kind == "ConfigMap" && s.ConfigMap.Name == name ||
				s.Secret != nil && kind == "Secret" && s.Secret.Name == name {
				return true
			}
		}
	}
	return false
}

// DependsOnNode tells whether a pod's volumes are made of what the node can
// allocate: resource fields without a limit, and memory without a bound.
func DependsOnNode(p *v1.Pod) bool {
	resources := func(items []v1.DownwardAPIVolumeFile) bool {
		for _, item := range items {
			if item.ResourceFieldRef != nil {
				return true
			}
		}
		return false
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		switch {
		case v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumMemory,
			v.DownwardAPI != nil && resources(v.DownwardAPI.Items):
			return true
		case v.Projected == nil:
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil && resources(s.DownwardAPI.Items) {
				return true
			}
		}
	}
	return false
}
