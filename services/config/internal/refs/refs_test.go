// SPDX-License-Identifier: Apache-2.0

package refs

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func TestOfPod(t *testing.T) {
	cases := map[string]struct{ pod, want string }{
		"nothing":      {`spec: {containers: [{name: c, image: i}]}`, ``},
		"pull secrets": {`spec: {imagePullSecrets: [{name: pull}, {name: ""}]}`, `Secret/ns/pull`},
		"environment of every kind of container": {`
spec:
  initContainers: [{name: a, env: [{name: X, valueFrom: {configMapKeyRef: {name: init, key: k}}}]}]
  containers: [{name: b, envFrom: [{configMapRef: {name: all}}, {secretRef: {name: sec}}], env: [{name: Y, value: v}, {name: Z, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]
  ephemeralContainers: [{name: e, env: [{name: X, valueFrom: {secretKeyRef: {name: debug, key: k}}}]}]
`, `ConfigMap/ns/all ConfigMap/ns/init Secret/ns/debug Secret/ns/sec`},
		"volumes": {`
spec:
  volumes:
  - {name: a, secret: {secretName: s}}
  - {name: b, configMap: {name: c}}
  - {name: c, emptyDir: {}}
  - {name: d, persistentVolumeClaim: {claimName: data}}
  - {name: e, ephemeral: {volumeClaimTemplate: {spec: {}}}}
  - {name: f, csi: {driver: csi.example, nodePublishSecretRef: {name: csi}}}
  - {name: g, hostPath: {path: /x}}
`, `CSIDriver//csi.example ConfigMap/ns/c PersistentVolumeClaim/ns/data PersistentVolumeClaim/ns/p-e Secret/ns/csi Secret/ns/s`},
		"projected": {`
spec:
  volumes:
  - name: all
    projected: {sources: [{configMap: {name: kube-root-ca.crt}}, {secret: {name: s}}, {serviceAccountToken: {path: token}}, {downwardAPI: {}},
      {clusterTrustBundle: {name: b, path: b}}, {clusterTrustBundle: {signerName: example.com/s, labelSelector: {matchLabels: {a: x}}, path: s}}, {clusterTrustBundle: {signerName: all, path: a}}]}
`, `ClusterTrustBundle//b ClusterTrustBundles//example.com/s?a=x ConfigMap/ns/kube-root-ca.crt Secret/ns/s`},
		"in-tree volumes": {`
spec:
  volumes:
  - {name: a, azureFile: {secretName: az, shareName: s}}
  - {name: b, iscsi: {secretRef: {name: is}}}
  - {name: c, flexVolume: {driver: d, secretRef: {name: fl}}}
  - {name: d, rbd: {secretRef: {name: rb}}}
  - {name: e, cephfs: {secretRef: {name: ce}}}
  - {name: f, cinder: {secretRef: {name: ci}}}
  - {name: g, scaleIO: {secretRef: {name: sc}}}
  - {name: h, storageos: {secretRef: {name: st}}}
`, `CSIDriver//cinder.csi.openstack.org CSIDriver//file.csi.azure.com Secret/ns/az Secret/ns/ce Secret/ns/fl Secret/ns/is Secret/ns/rb Secret/ns/sc Secret/ns/st`},
		"class and claims": {`
spec:
  runtimeClassName: gvisor
  resourceClaims: [{name: a, resourceClaimName: gpu}, {name: b, resourceClaimTemplateName: t}]
status:
  resourceClaimStatuses: [{name: b, resourceClaimName: p-b-1}]
`, `ResourceClaim/ns/gpu ResourceClaim/ns/p-b-1 RuntimeClass//gvisor`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := &v1.Pod{}
			if err := yaml.UnmarshalStrict([]byte(c.pod), p); err != nil {
				t.Fatal(err)
			}
			p.Name, p.Namespace = "p", "ns"
			if got := keys(Collect("n1", [][]Ref{OfPod(p)}, nothing)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func nothing(Ref) runtime.Object { return nil }

func keys(set Set) string {
	var all []string
	for _, r := range set.Sorted() {
		all = append(all, r.Key())
	}
	return strings.Join(all, " ")
}

func TestCollectFollowsWhatObjectsName(t *testing.T) {
	known := map[Ref]runtime.Object{
		{Kind: PersistentVolumeClaim, Namespace: "ns", Name: "data"}: &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}},
		{Kind: PersistentVolumeClaim, Namespace: "ns", Name: "wait"}: &v1.PersistentVolumeClaim{},
		{Kind: PersistentVolume, Name: "pv"}: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
			ClaimRef: &v1.ObjectReference{Namespace: "ns", Name: "data"},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver:               "csi.example",
				VolumeHandle:         "vol-1",
				NodePublishSecretRef: &v1.SecretReference{Namespace: "kube-system", Name: "csi"},
				NodeStageSecretRef:   &v1.SecretReference{Name: "here"},
			}},
		}},
	}
	lookup := func(r Ref) runtime.Object {
		if o, ok := known[r]; ok {
			return o
		}
		return nil
	}
	got := keys(Collect("n1", [][]Ref{{{Kind: PersistentVolumeClaim, Namespace: "ns", Name: "data"}, {Kind: PersistentVolumeClaim, Namespace: "ns", Name: "wait"}}}, lookup))
	want := "CSIDriver//csi.example PersistentVolume//pv PersistentVolumeClaim/ns/data PersistentVolumeClaim/ns/wait Secret/kube-system/csi Secret/ns/here"
	if withAttachment := want + " VolumeAttachment//csi-c59aa9fdb6e704451dbd837db8aa988fe5ba4a80aaa589eb502c5a10c5b2b9c8"; got != withAttachment {
		t.Errorf("got  %s\nwant %s", got, withAttachment)
	}
	no := false
	known[Ref{Kind: CSIDriver, Name: "csi.example"}] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}
	if got := keys(Collect("n1", [][]Ref{{{Kind: PersistentVolumeClaim, Namespace: "ns", Name: "data"}, {Kind: PersistentVolumeClaim, Namespace: "ns", Name: "wait"}}}, lookup)); got != want {
		t.Errorf("without attaching: got  %s\nwant %s", got, want)
	}
}

func TestOfVolumeSecrets(t *testing.T) {
	secret := &v1.SecretReference{Namespace: "s", Name: "n"}
	for name, src := range map[string]v1.PersistentVolumeSource{
		"iscsi":  {ISCSI: &v1.ISCSIPersistentVolumeSource{SecretRef: secret}},
		"flex":   {FlexVolume: &v1.FlexPersistentVolumeSource{SecretRef: secret}},
		"rbd":    {RBD: &v1.RBDPersistentVolumeSource{SecretRef: secret}},
		"cephfs": {CephFS: &v1.CephFSPersistentVolumeSource{SecretRef: secret}},
	} {
		refs := OfObject(&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: src}})
		if len(refs) != 1 || refs[0] != (Ref{Kind: Secret, Namespace: "s", Name: "n"}) {
			t.Errorf("%s: %v", name, refs)
		}
	}
}

func TestWantsServices(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		links *bool
		want  bool
	}{{nil, true}, {&yes, true}, {&no, false}} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{EnableServiceLinks: c.links}}
		if got := WantsServices(p); got != c.want {
			t.Errorf("links %v: %v", c.links, got)
		}
	}
}

func TestSame(t *testing.T) {
	driver, claim := &storagev1.CSIDriver{}, &v1.PersistentVolumeClaim{}
	bound := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	for _, c := range []struct {
		before, after runtime.Object
		want          bool
	}{{nil, driver, false}, {driver, nil, false}, {driver, driver, true}, {claim, bound, false}, {nil, claim, true}, {nil, nil, true}} {
		if got := Same(c.before, c.after); got != c.want {
			t.Errorf("%T, %T: %v", c.before, c.after, got)
		}
	}
}
