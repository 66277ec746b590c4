// SPDX-License-Identifier: Apache-2.0

package volumetype

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Kinds of the objects that volumes name.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindClaim     = "PersistentVolumeClaim"
	KindCSIDriver = "CSIDriver"
)

// Ref names an API object.
type Ref struct {
	Kind string
	// Namespace is empty for kinds without one.
	Namespace string
	Name      string
}

// Key is the key of the object in config's feeds: kind/namespace/name.
func (r Ref) Key() string { return r.Kind + "/" + r.Namespace + "/" + r.Name }

// Refs lists the objects that a volume of a pod names, perhaps some twice. Names may be empty.
func Refs(p *v1.Pod, v *v1.Volume) []Ref {
	if t := Of(v); t.Migrated {
		if pv, err := TranslateInline(p, v); err == nil { // making the volume reports it
			return PersistentRefs(pv)
		}
	} else if t.refs != nil {
		return t.refs(p, v)
	}
	return nil
}

// PersistentRefs lists the objects that a persistent volume names, as Refs.
func PersistentRefs(pv *v1.PersistentVolume) []Ref {
	pv, err := Translate(pv)
	if err != nil {
		return nil // making the volume reports it
	}
	if t := OfPersistent(pv); t.volumeRefs != nil {
		return t.volumeRefs(pv)
	}
	return nil
}

// own is a secret in the namespace of a pod.
func own(p *v1.Pod, s *v1.LocalObjectReference) []Ref {
	if s == nil {
		return nil
	}
	return []Ref{{KindSecret, p.Namespace, s.Name}}
}

// secrets of a persistent volume are in the namespace of its claim, unless they say where.
func secrets(pv *v1.PersistentVolume, all ...*v1.SecretReference) (refs []Ref) {
	namespace := ""
	if pv.Spec.ClaimRef != nil {
		namespace = pv.Spec.ClaimRef.Namespace
	}
	for _, s := range all {
		if s != nil && s.Name != "" {
			refs = append(refs, Ref{KindSecret, cmp.Or(s.Namespace, namespace), s.Name})
		}
	}
	return refs
}

func projectedRefs(p *v1.Pod, v *v1.Volume) (refs []Ref) {
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		if s.ConfigMap != nil {
			refs = append(refs, Ref{KindConfigMap, p.Namespace, s.ConfigMap.Name})
		}
		if s.Secret != nil {
			refs = append(refs, Ref{KindSecret, p.Namespace, s.Secret.Name})
		}
		if s.ClusterTrustBundle != nil {
			if kind, name, err := pod.TrustBundleName(s.ClusterTrustBundle); err == nil { // making the volume reports it
				refs = append(refs, Ref{Kind: kind, Name: name})
			}
		}
	}
	return refs
}
