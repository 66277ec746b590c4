// SPDX-License-Identifier: Apache-2.0

package volumetype

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

var types = []Type{
	{
		Plugin: EmptyDir, Origin: Scratch,
		inPod:     func(s *v1.VolumeSource) bool { return s.EmptyDir != nil },
		ephemeral: func(v *v1.Volume) bool { return v.EmptyDir.Medium == v1.StorageMediumDefault },
	},
	{
		Plugin:       HostPath,
		inPod:        func(s *v1.VolumeSource) bool { return s.HostPath != nil },
		inPersistent: func(s *v1.PersistentVolumeSource) bool { return s.HostPath != nil },
	},
	{
		Plugin: ConfigMap, Origin: API,
		inPod:     func(s *v1.VolumeSource) bool { return s.ConfigMap != nil },
		refs:      func(p *v1.Pod, v *v1.Volume) []Ref { return []Ref{{KindConfigMap, p.Namespace, v.ConfigMap.Name}} },
		ephemeral: func(*v1.Volume) bool { return true },
	},
	{
		Plugin: Secret, Origin: API,
		inPod: func(s *v1.VolumeSource) bool { return s.Secret != nil },
		refs:  func(p *v1.Pod, v *v1.Volume) []Ref { return []Ref{{KindSecret, p.Namespace, v.Secret.SecretName}} },
	},
	{
		Plugin: DownwardAPI, Origin: API,
		inPod: func(s *v1.VolumeSource) bool { return s.DownwardAPI != nil },
	},
	{
		Plugin: Projected, Origin: API,
		inPod: func(s *v1.VolumeSource) bool { return s.Projected != nil },
		refs:  projectedRefs,
	},
	{
		Plugin: Image,
		inPod:  func(s *v1.VolumeSource) bool { return s.Image != nil },
	},
	{
		Plugin: CSI, Block: true,
		inPod:        func(s *v1.VolumeSource) bool { return s.CSI != nil },
		inPersistent: func(s *v1.PersistentVolumeSource) bool { return s.CSI != nil },
		refs: func(p *v1.Pod, v *v1.Volume) []Ref {
			return append(own(p, v.CSI.NodePublishSecretRef), Ref{Kind: KindCSIDriver, Name: v.CSI.Driver})
		},
		volumeRefs: func(pv *v1.PersistentVolume) []Ref {
			s := pv.Spec.CSI
			return append(secrets(pv, s.NodeStageSecretRef, s.NodePublishSecretRef, s.NodeExpandSecretRef), Ref{Kind: KindCSIDriver, Name: s.Driver})
		},
	},
	{
		Plugin: Local, Block: true,
		inPersistent: func(s *v1.PersistentVolumeSource) bool { return s.Local != nil },
	},
	{
		Plugin: NFS, Tools: true,
		inPod:        func(s *v1.VolumeSource) bool { return s.NFS != nil },
		inPersistent: func(s *v1.PersistentVolumeSource) bool { return s.NFS != nil },
	},
	{
		Plugin: ISCSI, Tools: true, Block: true,
		inPod:        func(s *v1.VolumeSource) bool { return s.ISCSI != nil },
		inPersistent: func(s *v1.PersistentVolumeSource) bool { return s.ISCSI != nil },
		refs:         func(p *v1.Pod, v *v1.Volume) []Ref { return own(p, v.ISCSI.SecretRef) },
		volumeRefs:   func(pv *v1.PersistentVolume) []Ref { return secrets(pv, pv.Spec.ISCSI.SecretRef) },
	},
	{
		Plugin: FC, Tools: true, Block: true,
		inPod:        func(s *v1.VolumeSource) bool { return s.FC != nil },
		inPersistent: func(s *v1.PersistentVolumeSource) bool { return s.FC != nil },
	},
	{
		Plugin:   Claim,
		inPod:    func(s *v1.VolumeSource) bool { return s.PersistentVolumeClaim != nil || s.Ephemeral != nil },
		refs:     func(p *v1.Pod, v *v1.Volume) []Ref { return []Ref{{KindClaim, p.Namespace, ClaimName(p, v)}} },
		readOnly: func(v *v1.Volume) bool { return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly },
	},
	{
		Plugin:    "kubernetes.io/git-repo",
		Refused:   "gitRepo: this volume type is switched off for good (feature gate GitRepoVolumeDriver): clone in an init container, into an emptyDir",
		inPod:     func(s *v1.VolumeSource) bool { return s.GitRepo != nil },
		ephemeral: func(*v1.Volume) bool { return true },
	},
	unsupported("kubernetes.io/flexvolume", func(s *v1.VolumeSource) bool { return s.FlexVolume != nil }).keyed(
		func(s *v1.VolumeSource) *v1.LocalObjectReference { return s.FlexVolume.SecretRef },
		func(s *v1.PersistentVolumeSource) *v1.SecretReference { return s.FlexVolume.SecretRef },
		func(s *v1.PersistentVolumeSource) bool { return s.FlexVolume != nil }),
	migrated("aws-ebs", func(s *v1.VolumeSource) bool { return s.AWSElasticBlockStore != nil },
		func(s *v1.PersistentVolumeSource) bool { return s.AWSElasticBlockStore != nil }),
	migrated("gce-pd", func(s *v1.VolumeSource) bool { return s.GCEPersistentDisk != nil },
		func(s *v1.PersistentVolumeSource) bool { return s.GCEPersistentDisk != nil }),
	migrated("azure-disk", func(s *v1.VolumeSource) bool { return s.AzureDisk != nil },
		func(s *v1.PersistentVolumeSource) bool { return s.AzureDisk != nil }),
	migrated("azure-file", func(s *v1.VolumeSource) bool { return s.AzureFile != nil },
		func(s *v1.PersistentVolumeSource) bool { return s.AzureFile != nil }),
	migrated("cinder", func(s *v1.VolumeSource) bool { return s.Cinder != nil },
		func(s *v1.PersistentVolumeSource) bool { return s.Cinder != nil }),
	migrated("vsphere-volume", func(s *v1.VolumeSource) bool { return s.VsphereVolume != nil },
		func(s *v1.PersistentVolumeSource) bool { return s.VsphereVolume != nil }),
	migrated("portworx-volume", func(s *v1.VolumeSource) bool { return s.PortworxVolume != nil },
		func(s *v1.PersistentVolumeSource) bool { return s.PortworxVolume != nil }),
	removed("rbd", "rbd", func(s *v1.VolumeSource) bool { return s.RBD != nil }).keyed(
		func(s *v1.VolumeSource) *v1.LocalObjectReference { return s.RBD.SecretRef },
		func(s *v1.PersistentVolumeSource) *v1.SecretReference { return s.RBD.SecretRef },
		func(s *v1.PersistentVolumeSource) bool { return s.RBD != nil }),
	removed("cephfs", "cephfs", func(s *v1.VolumeSource) bool { return s.CephFS != nil }).keyed(
		func(s *v1.VolumeSource) *v1.LocalObjectReference { return s.CephFS.SecretRef },
		func(s *v1.PersistentVolumeSource) *v1.SecretReference { return s.CephFS.SecretRef },
		func(s *v1.PersistentVolumeSource) bool { return s.CephFS != nil }),
	removed("glusterfs", "glusterfs", func(s *v1.VolumeSource) bool { return s.Glusterfs != nil }),
	removed("quobyte", "quobyte", func(s *v1.VolumeSource) bool { return s.Quobyte != nil }),
	removed("scaleIO", "scaleio", func(s *v1.VolumeSource) bool { return s.ScaleIO != nil }).keyed(
		func(s *v1.VolumeSource) *v1.LocalObjectReference { return s.ScaleIO.SecretRef }, nil, nil),
	removed("storageos", "storageos", func(s *v1.VolumeSource) bool { return s.StorageOS != nil }).keyed(
		func(s *v1.VolumeSource) *v1.LocalObjectReference { return s.StorageOS.SecretRef }, nil, nil),
	removed("flocker", "flocker", func(s *v1.VolumeSource) bool { return s.Flocker != nil }),
	removed("photonPersistentDisk", "photon-pd", func(s *v1.VolumeSource) bool { return s.PhotonPersistentDisk != nil }),
}

var unknown = unsupported("unknown", nil)

func unsupported(plugin string, inPod func(*v1.VolumeSource) bool) Type {
	return Type{Plugin: plugin, Refused: fmt.Sprintf("volume plugin %s is not supported by this node agent", plugin), inPod: inPod}
}

// removed is a type that is in the API and no longer in Kubernetes.
func removed(field, plugin string, inPod func(*v1.VolumeSource) bool) Type {
	return Type{
		Plugin: "kubernetes.io/" + plugin, inPod: inPod,
		Refused: field + ": this volume type is no longer part of Kubernetes: use a volume of a CSI driver",
	}
}

// migrated is a type whose volumes a CSI driver makes now (KEP-625).
func migrated(plugin string, inPod func(*v1.VolumeSource) bool, inPersistent func(*v1.PersistentVolumeSource) bool) Type {
	return Type{Plugin: "kubernetes.io/" + plugin, Migrated: true, inPod: inPod, inPersistent: inPersistent}
}

// keyed is a type whose volumes name one secret: those of a pod, and persistent ones, if
// the type has any.
func (t Type) keyed(ofPod func(*v1.VolumeSource) *v1.LocalObjectReference, ofPersistent func(*v1.PersistentVolumeSource) *v1.SecretReference, inPersistent func(*v1.PersistentVolumeSource) bool) Type {
	t.inPersistent = inPersistent
	t.refs = func(p *v1.Pod, v *v1.Volume) []Ref { return own(p, ofPod(&v.VolumeSource)) }
	t.volumeRefs = func(pv *v1.PersistentVolume) []Ref { return secrets(pv, ofPersistent(&pv.Spec.PersistentVolumeSource)) }
	return t
}
