package content

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestUnsupported: what is not made any more is refused by its own name, with
// what to use instead.
func TestUnsupported(t *testing.T) {
	for source, want := range map[string]struct{ plugin, text string }{
		"gitRepo: {repository: x}":            {GitRepo, "clone in an init container"},
		"awsElasticBlockStore: {volumeID: x}": {"kubernetes.io/aws-ebs", "awsElasticBlockStore: this volume type is now the CSI driver ebs.csi.aws.com"},
		"gcePersistentDisk: {pdName: x}":      {"kubernetes.io/gce-pd", "pd.csi.storage.gke.io"},
		"azureDisk: {diskName: x}":            {"kubernetes.io/azure-disk", "disk.csi.azure.com"},
		"azureFile: {shareName: x}":           {"kubernetes.io/azure-file", "file.csi.azure.com"},
		"cinder: {volumeID: x}":               {"kubernetes.io/cinder", "cinder.csi.openstack.org"},
		"vsphereVolume: {volumePath: x}":      {"kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"},
		"portworxVolume: {volumeID: x}":       {"kubernetes.io/portworx-volume", "pxd.portworx.com"},
		"rbd: {monitors: [x]}":                {"kubernetes.io/rbd", "rbd: this volume type is no longer part of Kubernetes"},
		"cephfs: {path: x}":                   {"kubernetes.io/cephfs", "cephfs: "},
		"glusterfs: {path: x}":                {"kubernetes.io/glusterfs", "glusterfs: "},
		"quobyte: {volume: x}":                {"kubernetes.io/quobyte", "quobyte: "},
		"scaleIO: {volumeName: x}":            {"kubernetes.io/scaleio", "scaleIO: "},
		"storageos: {volumeName: x}":          {"kubernetes.io/storageos", "storageos: "},
		"flocker: {datasetName: x}":           {"kubernetes.io/flocker", "flocker: "},
		"photonPersistentDisk: {pdID: x}":     {"kubernetes.io/photon-pd", "photonPersistentDisk: "},
		"flexVolume: {driver: x}":             {FlexVolume, "volume plugin kubernetes.io/flexvolume is not supported"},
	} {
		v := &v1.Volume{}
		if err := yaml.UnmarshalStrict([]byte("name: v\n"+source), v); err != nil {
			t.Fatal(err)
		}
		if got := Plugin(v); got != want.plugin {
			t.Errorf("%s is of %s, want %s", source, got, want.plugin)
		}
		if err := Unsupported(v); !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", source, err)
		}
	}
}
