// SPDX-License-Identifier: Apache-2.0

// Package volumetype is the table of volume types: what is true of a volume by its type
// alone, for every service that asks. It is pure.
package volumetype

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Plugin names, as the kubelet has them on disk, in metrics and in the node's status.
const (
	EmptyDir    = "kubernetes.io/empty-dir"
	HostPath    = "kubernetes.io/host-path"
	ConfigMap   = "kubernetes.io/configmap"
	Secret      = "kubernetes.io/secret"
	DownwardAPI = "kubernetes.io/downward-api"
	Projected   = "kubernetes.io/projected"
	Image       = "kubernetes.io/image"
	CSI         = "kubernetes.io/csi"
	Local       = "kubernetes.io/local-volume"
	NFS         = "kubernetes.io/nfs"
	ISCSI       = "kubernetes.io/iscsi"
	FC          = "kubernetes.io/fc"
	Claim       = "kubernetes.io/persistent-volume-claim"
)

// Origin is where the content of a volume comes from.
type Origin int

const (
	// Elsewhere is a server, a device or a folder of the host. Making the volume may wait
	// for something other than this node.
	Elsewhere Origin = iota
	// Scratch is memory, or the disk of the root directory.
	Scratch
	// API is the API server: containers only read the files.
	API
)

// Type is a row of the table.
type Type struct {
	// Plugin is the name of the type on disk and in metrics.
	Plugin string
	Origin Origin
	// Tools reports whether making volumes takes tools that run as root (ToolsService).
	Tools bool
	// Block reports whether persistent volumes of the type may be devices (volumeMode Block).
	Block bool
	// Migrated reports whether volumes of the type are translated to those of a CSI driver
	// (Translate, TranslateInline), which makes them.
	Migrated bool
	// Refused is why volumes of the type are not made by this node; empty if they are.
	Refused string

	inPod        func(*v1.VolumeSource) bool
	inPersistent func(*v1.PersistentVolumeSource) bool
	refs         func(*v1.Pod, *v1.Volume) []Ref
	volumeRefs   func(*v1.PersistentVolume) []Ref
	readOnly     func(*v1.Volume) bool
	ephemeral    func(*v1.Volume) bool
}

// Of is the type of a pod's volume. One without a source, or with one that this version
// does not know, has a type that is refused.
func Of(v *v1.Volume) *Type {
	for i := range types {
		if is := types[i].inPod; is != nil && is(&v.VolumeSource) {
			return &types[i]
		}
	}
	return &unknown
}

// OfPersistent is the type of a persistent volume, as Of.
func OfPersistent(pv *v1.PersistentVolume) *Type {
	for i := range types {
		if is := types[i].inPersistent; is != nil && is(&pv.Spec.PersistentVolumeSource) {
			return &types[i]
		}
	}
	return &unknown
}

// Persistent lists the plugins of the types that are made and that persistent volumes may
// be of.
func Persistent() (plugins []string) {
	for i := range types {
		if types[i].inPersistent != nil && types[i].Refused == "" && !types[i].Migrated {
			plugins = append(plugins, types[i].Plugin)
		}
	}
	return plugins
}

// Made lists the plugins of all types whose volumes are made: each needs a plugin in the
// volume service. A claim is none of them: it leads to a volume of another type, as does
// one that is translated.
func Made() (plugins []string) {
	for i := range types {
		if types[i].Refused == "" && !types[i].Migrated && types[i].Plugin != Claim {
			plugins = append(plugins, types[i].Plugin)
		}
	}
	return plugins
}

// ReadOnly reports whether all containers of the pod mount a volume read-only, whatever
// their own mounts ask for.
func ReadOnly(v *v1.Volume) bool {
	t := Of(v)
	return t.Origin == API || t.readOnly != nil && t.readOnly(v)
}

// LocalEphemeral reports whether a volume counts against the local ephemeral storage of
// its pod (the kubelet's rule).
func LocalEphemeral(v *v1.Volume) bool {
	t := Of(v)
	return t.ephemeral != nil && t.ephemeral(v)
}

// ClaimName is the claim that a pod's volume comes from; empty for none. The claim of a
// generic ephemeral volume is named after pod and volume (API rule).
func ClaimName(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(p, v)
	}
	return ""
}
