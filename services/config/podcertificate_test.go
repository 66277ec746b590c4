// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

func TestPodCertificateAnswers(t *testing.T) {
	begin := metav1.NewTime(time.Unix(1000, 0))
	for name, c := range map[string]struct {
		status certificatesv1beta1.PodCertificateRequestStatus
		want   configv1.CertifyState
		say    string
	}{
		"nobody has answered": {want: configv1.CertifyState_CERTIFY_STATE_PENDING},
		"issued": {
			status: certificatesv1beta1.PodCertificateRequestStatus{
				Conditions: []metav1.Condition{{Type: "Issued"}}, CertificateChain: "chain", BeginRefreshAt: &begin,
			},
			want: configv1.CertifyState_CERTIFY_STATE_ISSUED,
		},
		"denied": {
			status: certificatesv1beta1.PodCertificateRequestStatus{Conditions: []metav1.Condition{{Type: "Denied", Reason: "UnsupportedKeyType", Message: "use ED25519"}}},
			want:   configv1.CertifyState_CERTIFY_STATE_DENIED, say: "Denied: UnsupportedKeyType: use ED25519",
		},
		"failed": {
			status: certificatesv1beta1.PodCertificateRequestStatus{Conditions: []metav1.Condition{{Type: "Failed", Reason: "Broken", Message: "no key"}}},
			want:   configv1.CertifyState_CERTIFY_STATE_DENIED, say: "Failed: Broken: no key",
		},
	} {
		got := podCertificate(&certificatesv1beta1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "req"}, Status: c.status})
		if got.GetState() != c.want || got.GetMessage() != c.say || got.GetName() != "req" || got.GetCertificateChain() != c.status.CertificateChain {
			t.Errorf("%s: %v", name, got)
		}
		if c.status.BeginRefreshAt != nil && got.GetBeginRefreshAt().AsTime() != begin.UTC() {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPodCertificateRequests(t *testing.T) {
	req := func(uid, pkcs10 string) *configv1.CertifyPodRequest {
		return &configv1.CertifyPodRequest{PodUid: uid, Pkcs10: []byte(pkcs10)}
	}
	name := podCertificateName(req("u", "a"))
	if name != podCertificateName(req("u", "a")) || name == podCertificateName(req("u", "b")) || name == podCertificateName(req("v", "a")) {
		t.Errorf("the same request is to have the same name, and no other: %s", name)
	}
	if len(name) > 63 {
		t.Errorf("name %s", name)
	}
	s := &server{}
	if _, err := s.CertifyPod(t.Context(), req("u", "a")); !rpc.Is(err, rpc.Invalid) {
		t.Errorf("a request that names no pod: %v", err)
	}
}
