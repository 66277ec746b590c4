// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// CertifyPod implements ConfigService.
func (s *server) CertifyPod(ctx context.Context, req *configv1.CertifyPodRequest) (*configv1.CertifyPodResponse, error) {
	for field, value := range map[string]string{
		"namespace": req.GetNamespace(), "pod_name": req.GetPodName(), "pod_uid": req.GetPodUid(),
		"service_account": req.GetServiceAccount(), "signer_name": req.GetSignerName(), "pkcs10": string(req.GetPkcs10()),
	} {
		if value == "" {
			return nil, rpc.Invalid.Errorf("%s: required", field)
		}
	}
	client, err := s.session.client()
	if err != nil {
		return nil, err
	}
	requests := client.CertificatesV1beta1().PodCertificateRequests(req.GetNamespace())
	name := req.GetName()
	if name == "" {
		object, err := s.podCertificateRequest(ctx, client, req)
		if err != nil {
			return nil, kinded(err)
		}
		found, err := requests.Create(ctx, object, metav1.CreateOptions{})
		if err == nil {
			return podCertificate(found), nil
		}
		// A node may read those only that are its own: not before there is one.
		if !apierrors.IsAlreadyExists(err) {
			return nil, kinded(err)
		}
		name = object.Name
	}
	found, err := requests.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, kinded(err)
	}
	if string(found.Spec.PodUID) != req.GetPodUid() {
		return nil, rpc.Conflict.Errorf("pod certificate request %s exists for pod %s", name, found.Spec.PodUID)
	}
	return podCertificate(found), nil
}

// podCertificateRequest is the object for a request, by a name that is the same for the
// same request. It goes with its pod.
func (s *server) podCertificateRequest(ctx context.Context, client kubernetes.Interface, req *configv1.CertifyPodRequest) (*certificatesv1beta1.PodCertificateRequest, error) {
	current, _ := s.session.inForce.get()
	account, err := client.CoreV1().ServiceAccounts(req.GetNamespace()).Get(ctx, req.GetServiceAccount(), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", req.GetNamespace(), req.GetServiceAccount(), err)
	}
	node, err := client.CoreV1().Nodes().Get(ctx, current.Node.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", current.Node.Name, err)
	}
	object := &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: req.GetNamespace(), Name: podCertificateName(req),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: req.GetPodName(), UID: types.UID(req.GetPodUid())}},
		},
		Spec: certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: req.GetSignerName(), PodName: req.GetPodName(), PodUID: types.UID(req.GetPodUid()),
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID, NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			StubPKCS10Request: req.GetPkcs10(), UnverifiedUserAnnotations: req.GetAnnotations(),
		},
	}
	if seconds := req.GetMaxExpirationSeconds(); seconds != 0 {
		object.Spec.MaxExpirationSeconds = &seconds
	}
	return object, nil
}

func podCertificate(r *certificatesv1beta1.PodCertificateRequest) *configv1.CertifyPodResponse {
	resp := &configv1.CertifyPodResponse{Name: r.Name, State: configv1.CertifyState_CERTIFY_STATE_PENDING}
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1beta1.PodCertificateRequestConditionTypeDenied, certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
			resp.State = configv1.CertifyState_CERTIFY_STATE_DENIED
			resp.Message = strings.TrimSpace(c.Type + ": " + c.Reason + ": " + c.Message)
		case certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
			resp.State, resp.CertificateChain = configv1.CertifyState_CERTIFY_STATE_ISSUED, r.Status.CertificateChain
			if t := r.Status.BeginRefreshAt; t != nil {
				resp.BeginRefreshAt = timestamppb.New(t.Time)
			}
		}
	}
	return resp
}

func podCertificateName(req *configv1.CertifyPodRequest) string {
	sum := sha256.Sum256(append([]byte(req.GetPodUid()), req.GetPkcs10()...))
	return fmt.Sprintf("req-%x", sum[:20])
}
