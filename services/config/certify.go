// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base32"
	"encoding/pem"
	"net"
	"slices"
	"strconv"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/certificate"

	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// Certify implements ConfigService.
func (s *server) Certify(ctx context.Context, req *configv1.CertifyRequest) (*configv1.CertifyResponse, error) {
	current, _ := s.session.inForce.get()
	csr, err := servingRequest(req.GetRequest(), current.Node.Name)
	if err != nil {
		return nil, err
	}
	client, err := s.session.client()
	if err != nil {
		return nil, err
	}
	node, _ := s.objects.Lookup(refs.Ref{Kind: refs.Node, Name: current.Node.Name}).(*v1.Node)
	if name := foreignName(csr, node); name != "" {
		// The addresses may have changed just now.
		return nil, rpc.Unavailable.Errorf("request: %s is no address of node %s at the API server", name, current.Node.Name)
	}
	requests := client.CertificatesV1().CertificateSigningRequests()
	object := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: servingName(req.GetRequest())},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: req.GetRequest(), SignerName: certificatesv1.KubeletServingSignerName,
			Usages: certificate.DefaultKubeletServingGetUsages(csr.PublicKey),
		},
	}
	found, err := requests.Get(ctx, object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		found, err = requests.Create(ctx, object, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, kinded(err)
	}
	if !bytes.Equal(found.Spec.Request, req.GetRequest()) || found.Spec.SignerName != object.Spec.SignerName {
		return nil, rpc.Conflict.Errorf("certificate signing request %s exists with other content", found.Name)
	}
	return certifyResponse(found), nil
}

// maxServingRequest bounds a request, in bytes: the key in it is the caller's, and to
// check a signature takes time that grows with the cube of the key's length.
const maxServingRequest = 16 << 10

// servingRequest accepts a request for this node's serving certificate, and for
// nothing else: the caller has no credential, and gets none through this.
func servingRequest(data []byte, node string) (*x509.CertificateRequest, error) {
	if len(data) > maxServingRequest {
		return nil, rpc.Invalid.Errorf("request: longer than %d bytes", maxServingRequest)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, rpc.Invalid.Errorf("request: must be one PEM CERTIFICATE REQUEST")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, rpc.Invalid.Errorf("request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, rpc.Invalid.Errorf("request: %w", err)
	}
	if want := "system:node:" + node; csr.Subject.CommonName != want || !slices.Equal(csr.Subject.Organization, []string{"system:nodes"}) {
		return nil, rpc.Invalid.Errorf("request: subject is %q, must be CN=%s,O=system:nodes", csr.Subject, want)
	}
	if len(csr.DNSNames)+len(csr.IPAddresses) == 0 || len(csr.EmailAddresses)+len(csr.URIs) > 0 {
		return nil, rpc.Invalid.Errorf("request: must name DNS names or IP addresses, and nothing else")
	}
	return csr, nil
}

// foreignName is a name or address in a request that is none of the node's, and empty
// when all are. Approvers need not look at that, and the caller may be compromised.
func foreignName(csr *x509.CertificateRequest, node *v1.Node) string {
	own := map[string]bool{}
	if node != nil {
		for _, a := range node.Status.Addresses {
			own[a.Address] = true
			if ip := net.ParseIP(a.Address); ip != nil {
				own[ip.String()] = true
			}
		}
	}
	names := slices.Clone(csr.DNSNames)
	for _, ip := range csr.IPAddresses {
		names = append(names, ip.String())
	}
	if i := slices.IndexFunc(names, func(name string) bool { return !own[name] }); i >= 0 {
		return strconv.Quote(names[i])
	}
	return ""
}

// servingName is the same for the same request.
func servingName(request []byte) string {
	sum := sha256.Sum256(request)
	return "csr-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
}

func certifyResponse(csr *certificatesv1.CertificateSigningRequest) *configv1.CertifyResponse {
	resp := &configv1.CertifyResponse{
		Name: csr.Name, State: configv1.CertifyState_CERTIFY_STATE_PENDING, Message: "waits to be approved",
	}
	for _, c := range csr.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			resp.State = configv1.CertifyState_CERTIFY_STATE_DENIED
			resp.Message = strings.TrimSpace(c.Reason + ": " + c.Message)
			return resp
		case certificatesv1.CertificateApproved:
			resp.Message = "approved, waits to be signed"
			if len(csr.Status.Certificate) > 0 {
				resp.State, resp.Message, resp.Certificate = configv1.CertifyState_CERTIFY_STATE_ISSUED, "", csr.Status.Certificate
			}
		}
	}
	return resp
}
