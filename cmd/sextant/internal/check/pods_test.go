// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/test/fakeapi"
)

// TestManyClaims: every claim of a node is looked at, also the last of a hundred, which is
// bound to a volume that Sextant does not make.
func TestManyClaims(t *testing.T) {
	const claims = 100
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch name := path.Base(r.URL.Path); {
		case strings.HasSuffix(r.URL.Path, "/pods"):
			list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
			for i := range claims {
				p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", i)}}
				p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("c", i)}}}}
				list.Items = append(list.Items, p)
			}
			answer = list
		case strings.Contains(r.URL.Path, "/persistentvolumeclaims/"):
			answer = &v1.PersistentVolumeClaim{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: v1.PersistentVolumeClaimSpec{VolumeName: "v" + name},
			}
		default:
			pv := &v1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
			pv.Spec.NFS = &v1.NFSVolumeSource{Server: "s", Path: "/"}
			if name == fmt.Sprint("vc", claims-1) {
				pv.Spec.NFS, pv.Spec.FlexVolume = nil, &v1.FlexPersistentVolumeSource{Driver: "vendor/disk"}
			}
			answer = pv
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the client may have gone
	}))
	defer server.Close()
	conf := &kubeletconfig.Config{}
	conf.Node.Name, conf.Node.KubeConfig = "n1", filepath.Join(t.TempDir(), "kubeconfig")
	if err := fakeapi.WriteKubeconfig(conf.Node.KubeConfig, server.URL); err != nil {
		t.Fatal(err)
	}
	f := &Facts{}
	if err := f.pods(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	if len(f.Unread) > 0 {
		t.Errorf("%d claims were not looked at, the first: %v", len(f.Unread), f.Unread[0])
	}
	if len(f.Pods) != claims || len(f.Pods[claims-1].Volumes) != 1 {
		t.Errorf("%d pods; the last: %v", len(f.Pods), f.Pods[len(f.Pods)-1])
	}
}
