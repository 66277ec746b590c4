// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/fakecri"

	"github.com/sextant-node/sextant/pkg/pod/reason"
)

// private makes a pull secret for r.example and a pod that has it.
func private(n *node, secret string) *v1.Pod {
	n.facts.objects["Secret/default/"+secret] = &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: secret, UID: types.UID("uid-" + secret)}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"r.example":{"username":"` + secret + `","password":"1"}}}`)},
	}
	return web(func(p *v1.Pod) { p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: secret}} })
}

func TestPrivateImagesStayPrivate(t *testing.T) {
	const image = "r.example/app:1"
	for _, tc := range []struct {
		name   string
		policy kubeletv1beta1.ImagePullCredentialsVerificationPolicy
		secret string // of the second pod; "" for none
		pull   v1.PullPolicy
		pulls  int // of the second pod
		reason Reason
	}{
		{"the same secret", "", "team", v1.PullIfNotPresent, 0, ""},
		{"no secret", "", "", v1.PullIfNotPresent, 1, reason.ErrImagePull},
		{"another secret", "", "other", v1.PullIfNotPresent, 1, reason.ErrImagePull},
		{"no secret, never pull", "", "", v1.PullNever, 0, reason.ErrImageNeverPull},
		{"the same secret, never pull", "", "team", v1.PullNever, 0, ""},
		{"nobody asks", kubeletv1beta1.NeverVerify, "", v1.PullIfNotPresent, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := start(t, false)
			if tc.policy != "" {
				n.conf.Kubelet.ImagePullCredentialsVerificationPolicy = tc.policy
			}
			first := private(n, "team")
			if _, err := n.EnsureImage(n.ctx(), ImageSpec{Pod: first, Container: "web", Image: image, Policy: v1.PullIfNotPresent}); err != nil {
				t.Fatal(err)
			}
			second := web()
			if tc.secret != "" {
				second = private(n, tc.secret)
			}
			n.rt.ResetCalls()
			n.rt.Fail(fakecri.Match{Method: "PullImage"}, -1, status.Error(codes.PermissionDenied, "not yours"))
			_, err := n.EnsureImage(n.ctx(), ImageSpec{Pod: second, Container: "web", Image: image, Policy: tc.pull})
			if reason, _ := ReasonOf(err); reason != tc.reason {
				t.Errorf("got %v, want %s", err, tc.reason)
			}
			if got := n.rt.Count(fakecri.Match{Method: "PullImage"}); got != tc.pulls {
				t.Errorf("%d pulls, want %d", got, tc.pulls)
			}
		})
	}
}

func TestRecordsThatCannotBeWritten(t *testing.T) {
	n := start(t, false)
	// A file where the folder should be: no fault of permissions.
	if err := os.MkdirAll(n.cfg.RootDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.cfg.RootDir, "image_manager"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := n.ensure("r.example/app:1", v1.PullAlways)
	if got, _ := ReasonOf(err); got != reason.ErrImagePull || n.rt.Count(fakecri.Match{Method: "PullImage"}) != 0 {
		t.Errorf("pulled without a record: %v", err)
	}
	if !n.unrecorded(os.ErrPermission) || n.unrecorded(os.ErrClosed) {
		t.Error("only records that may not be accessed are done without")
	}
}
