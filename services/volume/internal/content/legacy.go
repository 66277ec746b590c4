package content

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// legacy is a volume type that is in the API and no longer in Kubernetes.
type legacy struct {
	field, plugin string
	// driver is the CSI driver that took it over; "" if none did.
	driver string
	is     func(*v1.VolumeSource) bool
}

var legacies = []legacy{
	{"awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", func(s *v1.VolumeSource) bool { return s.AWSElasticBlockStore != nil }},
	{"gcePersistentDisk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", func(s *v1.VolumeSource) bool { return s.GCEPersistentDisk != nil }},
	{"azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com", func(s *v1.VolumeSource) bool { return s.AzureDisk != nil }},
	{"azureFile", "kubernetes.io/azure-file", "file.csi.azure.com", func(s *v1.VolumeSource) bool { return s.AzureFile != nil }},
	{"cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org", func(s *v1.VolumeSource) bool { return s.Cinder != nil }},
	{"vsphereVolume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", func(s *v1.VolumeSource) bool { return s.VsphereVolume != nil }},
	{"portworxVolume", "kubernetes.io/portworx-volume", "pxd.portworx.com", func(s *v1.VolumeSource) bool { return s.PortworxVolume != nil }},
	{"rbd", "kubernetes.io/rbd", "", func(s *v1.VolumeSource) bool { return s.RBD != nil }},
	{"cephfs", "kubernetes.io/cephfs", "", func(s *v1.VolumeSource) bool { return s.CephFS != nil }},
	{"glusterfs", "kubernetes.io/glusterfs", "", func(s *v1.VolumeSource) bool { return s.Glusterfs != nil }},
	{"quobyte", "kubernetes.io/quobyte", "", func(s *v1.VolumeSource) bool { return s.Quobyte != nil }},
	{"scaleIO", "kubernetes.io/scaleio", "", func(s *v1.VolumeSource) bool { return s.ScaleIO != nil }},
	{"storageos", "kubernetes.io/storageos", "", func(s *v1.VolumeSource) bool { return s.StorageOS != nil }},
	{"flocker", "kubernetes.io/flocker", "", func(s *v1.VolumeSource) bool { return s.Flocker != nil }},
	{"photonPersistentDisk", "kubernetes.io/photon-pd", "", func(s *v1.VolumeSource) bool { return s.PhotonPersistentDisk != nil }},
}

func legacyOf(v *v1.Volume) *legacy {
	for i := range legacies {
		if legacies[i].is(&v.VolumeSource) {
			return &legacies[i]
		}
	}
	return nil
}

// Unsupported says of a volume that is not made why, and what to use instead.
func Unsupported(v *v1.Volume) error {
	if v.GitRepo != nil {
		return errors.New("gitRepo: this volume type is switched off for good (feature gate GitRepoVolumeDriver): clone in an init container, into an emptyDir")
	}
	l := legacyOf(v)
	switch {
	case l == nil:
		return fmt.Errorf("volume plugin %s is not supported by this node agent", Plugin(v))
	case l.driver != "":
		return fmt.Errorf("%s: this volume type is now the CSI driver %s: use a volume of that driver", l.field, l.driver)
	}
	return fmt.Errorf("%s: this volume type is no longer part of Kubernetes: use a volume of a CSI driver", l.field)
}
