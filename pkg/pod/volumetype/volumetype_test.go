// SPDX-License-Identifier: Apache-2.0

package volumetype

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, source string) *v1.Volume {
	t.Helper()
	v := &v1.Volume{}
	if err := yaml.UnmarshalStrict([]byte("name: v\n"+source), v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestTable: the facts of each type that is made, as origin, read-only rule, and whether
// it counts against the pod's ephemeral storage.
func TestTable(t *testing.T) {
	for source, want := range map[string]string{
		"emptyDir: {}":                          "kubernetes.io/empty-dir 1 false true",
		"emptyDir: {medium: Memory}":            "kubernetes.io/empty-dir 1 false false",
		"hostPath: {path: /}":                   "kubernetes.io/host-path 0 false false",
		"configMap: {name: c}":                  "kubernetes.io/configmap 2 true true",
		"secret: {secretName: s}":               "kubernetes.io/secret 2 true false",
		"downwardAPI: {}":                       "kubernetes.io/downward-api 2 true false",
		"projected: {}":                         "kubernetes.io/projected 2 true false",
		"image: {}":                             "kubernetes.io/image 0 false false",
		"csi: {driver: d}":                      "kubernetes.io/csi 0 false false",
		"nfs: {server: s, path: /}":             "kubernetes.io/nfs 0 false false",
		"iscsi: {iqn: i}":                       "kubernetes.io/iscsi 0 false false",
		"fc: {}":                                "kubernetes.io/fc 0 false false",
		"ephemeral: {}":                         "kubernetes.io/persistent-volume-claim 0 false false",
		"gitRepo: {repository: x}":              "kubernetes.io/git-repo 0 false true",
		"":                                      "unknown 0 false false",
		"persistentVolumeClaim: {claimName: c}": "kubernetes.io/persistent-volume-claim 0 false false",
		"persistentVolumeClaim: {claimName: c, readOnly: true}": "kubernetes.io/persistent-volume-claim 0 true false",
	} {
		v := parse(t, source)
		if got := fmt.Sprint(Of(v).Plugin, " ", int(Of(v).Origin), " ", ReadOnly(v), " ", LocalEphemeral(v)); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}

// TestEveryFieldOfTheAPIHasAType: a source that a new version of the API brings needs a row.
func TestEveryFieldOfTheAPIHasAType(t *testing.T) {
	fields := func(source any, is func(reflect.Value) bool, without ...string) {
		kind := reflect.TypeOf(source)
		for i := range kind.NumField() {
			value := reflect.New(kind).Elem()
			value.Field(i).Set(reflect.New(kind.Field(i).Type.Elem()))
			if name := kind.Field(i).Name; !is(value) && !slices.Contains(without, name) {
				t.Errorf("%s.%s has no row", kind.Name(), name)
			}
		}
	}
	rows := map[*Type]bool{}
	fields(v1.VolumeSource{}, func(s reflect.Value) bool {
		of := Of(&v1.Volume{VolumeSource: s.Interface().(v1.VolumeSource)})
		rows[of] = true
		return of != &unknown
	})
	fields(v1.PersistentVolumeSource{}, func(s reflect.Value) bool {
		of := OfPersistent(&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: s.Interface().(v1.PersistentVolumeSource)}})
		rows[of] = true
		return of != &unknown
	}, "Glusterfs", "Flocker", "Quobyte", "PhotonPersistentDisk", "ScaleIO", "StorageOS") // removed, and without secrets
	delete(rows, &unknown)
	if len(rows) != len(types) {
		t.Errorf("%d types for %d rows", len(rows), len(types))
	}
}

// TestRefused: what is not made any more is refused by its own name, with what to use
// instead.
func TestRefused(t *testing.T) {
	for source, want := range map[string]struct{ plugin, text string }{
		"gitRepo: {repository: x}":        {"kubernetes.io/git-repo", "clone in an init container"},
		"rbd: {monitors: [x]}":            {"kubernetes.io/rbd", "rbd: this volume type is no longer part of Kubernetes"},
		"cephfs: {path: x}":               {"kubernetes.io/cephfs", "cephfs: "},
		"glusterfs: {path: x}":            {"kubernetes.io/glusterfs", "glusterfs: "},
		"quobyte: {volume: x}":            {"kubernetes.io/quobyte", "quobyte: "},
		"scaleIO: {volumeName: x}":        {"kubernetes.io/scaleio", "scaleIO: "},
		"storageos: {volumeName: x}":      {"kubernetes.io/storageos", "storageos: "},
		"flocker: {datasetName: x}":       {"kubernetes.io/flocker", "flocker: "},
		"photonPersistentDisk: {pdID: x}": {"kubernetes.io/photon-pd", "photonPersistentDisk: "},
		"flexVolume: {driver: x}":         {"kubernetes.io/flexvolume", "volume plugin kubernetes.io/flexvolume is not supported"},
		"":                                {"unknown", "volume plugin unknown is not supported by this node agent"},
	} {
		of := Of(parse(t, source))
		if of.Plugin != want.plugin {
			t.Errorf("%s is of %s, want %s", source, of.Plugin, want.plugin)
		}
		if !strings.Contains(of.Refused, want.text) {
			t.Errorf("%s: %s", source, of.Refused)
		}
	}
}

// TestMigrated: the volumes of migrated types are those of CSI drivers, those of a pod as
// those of the cluster, and refer to what the driver needs.
func TestMigrated(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for _, tc := range []struct{ plugin, source, driver, handle, refs string }{
		{"kubernetes.io/aws-ebs", "awsElasticBlockStore: {volumeID: vol-1}", "ebs.csi.aws.com", "vol-1", "CSIDriver//ebs.csi.aws.com"},
		{"kubernetes.io/gce-pd", "gcePersistentDisk: {pdName: x}", "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/x", "CSIDriver//pd.csi.storage.gke.io"},
		{"kubernetes.io/azure-disk", "azureDisk: {diskName: x, diskURI: /d/x, cachingMode: None, kind: Managed}", "disk.csi.azure.com", "/d/x", "CSIDriver//disk.csi.azure.com"},
		{"kubernetes.io/azure-file", "azureFile: {shareName: x, secretName: s, secretNamespace: ns}", "file.csi.azure.com", "#s#x#", "Secret/ns/s CSIDriver//file.csi.azure.com"},
		{"kubernetes.io/cinder", "cinder: {volumeID: x}", "cinder.csi.openstack.org", "x", "CSIDriver//cinder.csi.openstack.org"},
		{"kubernetes.io/vsphere-volume", "vsphereVolume: {volumePath: x}", "csi.vsphere.vmware.com", "x", "CSIDriver//csi.vsphere.vmware.com"},
		{"kubernetes.io/portworx-volume", "portworxVolume: {volumeID: x}", "pxd.portworx.com", "x", "CSIDriver//pxd.portworx.com"},
	} {
		persistent := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		if err := yaml.Unmarshal([]byte(tc.source), &persistent.Spec.PersistentVolumeSource); err != nil {
			t.Fatal(err)
		}
		persistent.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "c"}
		if of := OfPersistent(persistent); of.Plugin != tc.plugin || !of.Migrated || of.Refused != "" {
			t.Errorf("%s: %s, migrated %v, refused %q", tc.source, of.Plugin, of.Migrated, of.Refused)
		}
		check := func(what string, pv *v1.PersistentVolume, err error, refs []Ref) {
			t.Helper()
			if err != nil || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != tc.driver || !strings.Contains(pv.Spec.CSI.VolumeHandle, tc.handle) {
				t.Errorf("%s of %s: %+v, %v", what, tc.source, pv, err)
				return
			}
			var keys []string
			for _, r := range refs {
				keys = append(keys, r.Key())
			}
			if got := strings.Join(keys, " "); got != tc.refs {
				t.Errorf("%s of %s refers to %s, want %s", what, tc.source, got, tc.refs)
			}
		}
		got, err := Translate(persistent)
		check("volume", got, err, PersistentRefs(persistent))
		if err == nil && got.Name != "pv" {
			t.Errorf("the volume is called %s", got.Name)
		}
		inline := strings.Replace(tc.source, ", secretNamespace: ns", "", 1)
		v := parse(t, inline)
		if !Indirect(p, v) || slices.Contains(Made(), tc.plugin) || slices.Contains(Persistent(), tc.plugin) {
			t.Errorf("%s is made by a plugin of its own", tc.source)
		}
		if tc.plugin == "kubernetes.io/portworx-volume" {
			continue // pods have none of their own
		}
		got, err = TranslateInline(p, v)
		check("inline volume", got, err, Refs(p, v))
	}
	// What cannot be translated has no references, and is an error where it is made.
	bad := &v1.PersistentVolume{}
	bad.Spec.AzureFile = &v1.AzureFilePersistentVolumeSource{ShareName: "x", SecretName: "s"} // in no namespace
	if _, err := Translate(bad); err == nil || len(PersistentRefs(bad)) != 0 {
		t.Errorf("an azureFile with a secret in no namespace: %v, %v", err, PersistentRefs(bad))
	}
}
