// SPDX-License-Identifier: Apache-2.0

package refs

import (
	"iter"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
)

// OfPod lists the objects a pod names, in no order, perhaps some twice.
func OfPod(p *v1.Pod) []Ref {
	f := finder{namespace: p.Namespace}
	spec := &p.Spec
	for i := range spec.ImagePullSecrets {
		f.add(Secret, spec.ImagePullSecrets[i].Name)
	}
	for c := range containers(spec) {
		f.environment(c)
	}
	for i := range spec.Volumes {
		f.named(volumetype.Refs(p, &spec.Volumes[i]))
	}
	if spec.RuntimeClassName != nil {
		f.global(RuntimeClass, *spec.RuntimeClassName)
	}
	f.claims(p)
	return f.refs
}

// WantsServices reports whether the environment of the pod's containers lists the
// services of its namespace. (The kubernetes service of the default namespace
// is listed for every pod.)
func WantsServices(p *v1.Pod) bool {
	return p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks
}

type finder struct {
	namespace string
	refs      []Ref
}

func (f *finder) add(kind, name string) {
	if name != "" {
		f.refs = append(f.refs, Ref{Kind: kind, Namespace: f.namespace, Name: name})
	}
}

func (f *finder) global(kind, name string) {
	if name != "" {
		f.refs = append(f.refs, Ref{Kind: kind, Name: name})
	}
}

func (f *finder) named(refs []Ref) {
	for _, r := range refs {
		if r.Name != "" {
			f.refs = append(f.refs, r)
		}
	}
}

// containers yields every container of a pod: init, regular and ephemeral.
func containers(spec *v1.PodSpec) iter.Seq[*v1.EphemeralContainerCommon] {
	return func(yield func(*v1.EphemeralContainerCommon) bool) {
		for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield((*v1.EphemeralContainerCommon)(&list[i])) {
					return
				}
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(&spec.EphemeralContainers[i].EphemeralContainerCommon) {
				return
			}
		}
	}
}

func (f *finder) environment(c *v1.EphemeralContainerCommon) {
	for i := range c.EnvFrom {
		if r := c.EnvFrom[i].ConfigMapRef; r != nil {
			f.add(ConfigMap, r.Name)
		}
		if r := c.EnvFrom[i].SecretRef; r != nil {
			f.add(Secret, r.Name)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if from.ConfigMapKeyRef != nil {
			f.add(ConfigMap, from.ConfigMapKeyRef.Name)
		}
		if from.SecretKeyRef != nil {
			f.add(Secret, from.SecretKeyRef.Name)
		}
	}
}

// claims finds resource claims: named directly, or made from a template and
// named in the status.
func (f *finder) claims(p *v1.Pod) {
	for i := range p.Spec.ResourceClaims {
		if name := p.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			f.add(ResourceClaim, *name)
		}
	}
	for i := range p.Status.ResourceClaimStatuses {
		if name := p.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil {
			f.add(ResourceClaim, *name)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		f.add(ResourceClaim, s.ResourceClaimName)
	}
}
