// SPDX-License-Identifier: Apache-2.0

// Package refs finds the API objects that pods need on the node: what their
// volumes, environments, pull secrets and classes name, and what those objects
// name in turn. It is pure.
package refs

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
)

// Kinds of objects.
const (
	ConfigMap             = volumetype.KindConfigMap
	Secret                = volumetype.KindSecret
	Service               = "Service"
	Node                  = "Node"
	RuntimeClass          = "RuntimeClass"
	PersistentVolumeClaim = volumetype.KindClaim
	PersistentVolume      = "PersistentVolume"
	CSIDriver             = volumetype.KindCSIDriver
	VolumeAttachment      = "VolumeAttachment"
	ResourceClaim         = "ResourceClaim"
)

// Ref names an API object.
type Ref = volumetype.Ref

// Set is a set of objects.
type Set map[Ref]struct{}

// Add puts objects into the set; those without a name are left out.
func (s Set) Add(refs ...Ref) {
	for _, r := range refs {
		if r.Name != "" {
			s[r] = struct{}{}
		}
	}
}

// Has reports whether the set holds an object.
func (s Set) Has(r Ref) bool {
	_, ok := s[r]
	return ok
}

// Sorted lists the set by kind, namespace and name.
func (s Set) Sorted() []Ref {
	return slices.SortedFunc(maps.Keys(s), func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Collect finds everything that pods need on a node: direct lists what each pod
// names itself (see OfPod), and lookup yields an object that is already known,
// or nil.
func Collect(node string, direct [][]Ref, lookup func(Ref) runtime.Object) Set {
	set := Set{}
	var todo []Ref
	add := func(refs []Ref) {
		for _, r := range refs {
			if r.Name != "" && !set.Has(r) {
				set.Add(r)
				todo = append(todo, r)
			}
		}
	}
	for _, refs := range direct {
		add(refs)
	}
	for len(todo) > 0 {
		r := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		object := lookup(r)
		if object == nil {
			continue
		}
		add(OfObject(object))
		if pv, ok := object.(*v1.PersistentVolume); ok && pv.Spec.CSI != nil && attached(pv.Spec.CSI.Driver, lookup) {
			add([]Ref{{Kind: VolumeAttachment, Name: Attachment(pv.Spec.CSI, node)}})
		}
	}
	return set
}

// attached reports whether volumes of a driver are attached to nodes: as long as
// nothing else is known, they are.
func attached(driver string, lookup func(Ref) runtime.Object) bool {
	known, ok := lookup(Ref{Kind: CSIDriver, Name: driver}).(*storagev1.CSIDriver)
	return !ok || known.Spec.AttachRequired == nil || *known.Spec.AttachRequired
}

// Attachment names the VolumeAttachment of a volume on a node, as the attach
// controller does.
func Attachment(volume *v1.CSIPersistentVolumeSource, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volume.VolumeHandle+volume.Driver+node)))
}

// Same reports whether what Collect finds is the same with either version of an
// object, nil for none.
func Same(before, after runtime.Object) bool {
	_, driver := after.(*storagev1.CSIDriver)
	_, was := before.(*storagev1.CSIDriver)
	return driver == was && slices.Equal(OfObject(before), OfObject(after))
}

// OfObject lists what an object names in turn: a bound claim its volume, a
// volume its driver and the driver's secrets.
func OfObject(object runtime.Object) []Ref {
	switch o := object.(type) {
	case *v1.PersistentVolumeClaim:
		if o.Spec.VolumeName != "" {
			return []Ref{{Kind: PersistentVolume, Name: o.Spec.VolumeName}}
		}
	case *v1.PersistentVolume:
		return volumetype.PersistentRefs(o)
	}
	return nil
}
