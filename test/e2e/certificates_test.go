// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

const signerName = "example.com/pods"

// authority issues certificates for pods, once it is told to.
type authority struct {
	*testing.T
	cp   *harness.ControlPlane
	ns   string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// newAuthority is a certificate authority of that name.
func newAuthority(t *testing.T, cp *harness.ControlPlane, ns, name string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{T: t, cp: cp, ns: ns, key: key, cert: cert}
}

func (a *authority) anchor() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// requests are those of pods that wait for this signer.
func (a *authority) requests(ctx context.Context) ([]certificatesv1beta1.PodCertificateRequest, error) {
	list, err := a.cp.Admin.CertificatesV1beta1().PodCertificateRequests(a.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(r certificatesv1beta1.PodCertificateRequest) bool { return len(r.Status.Conditions) > 0 }), nil
}

// sign answers the request that waits.
func (a *authority) sign(ctx context.Context) error {
	waiting, err := a.requests(ctx)
	if err != nil {
		return err
	}
	if len(waiting) != 1 {
		return fmt.Errorf("%d requests wait", len(waiting))
	}
	r := &waiting[0]
	csr, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return err
	}
	begin, end := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second)), metav1.NewTime(time.Now().Add(2*time.Hour).Truncate(time.Second))
	refresh := metav1.NewTime(begin.Add(time.Hour))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: r.Spec.PodName},
		NotBefore: begin.Time, NotAfter: end.Time, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, csr.PublicKey, a.key)
	if err != nil {
		return err
	}
	r.Status = certificatesv1beta1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue, Reason: "Test", Message: "by the test", LastTransitionTime: metav1.Now()}},
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        &begin, NotAfter: &end, BeginRefreshAt: &refresh,
	}
	_, err = a.cp.Admin.CertificatesV1beta1().PodCertificateRequests(a.ns).UpdateStatus(ctx, r, metav1.UpdateOptions{})
	return err
}

// TestCertificates: trust bundles and a certificate in a projected volume, by the
// gates that are off otherwise, with the node's own rights at the API server.
func TestCertificates(t *testing.T) {
	cp := harness.StartControlPlane(t)
	ns := cp.Namespace(t)
	n := harness.NewNode(t, harness.NodeOptions{ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.FeatureGates = map[string]bool{"ClusterTrustBundle": true, "ClusterTrustBundleProjection": true, "PodCertificateRequest": true}
	}})
	n.Up(t)
	one, two := newAuthority(t, cp, ns, "one"), newAuthority(t, cp, ns, "two")
	bundles := cp.Admin.CertificatesV1beta1().ClusterTrustBundles()
	put := func(name, signer, text string) *certificatesv1beta1.ClusterTrustBundle {
		b, err := bundles.Create(t.Context(), &certificatesv1beta1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ring": "live"}},
			Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := bundles.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		return b
	}
	byName := put(ns, "", one.anchor())
	put(strings.ReplaceAll(signerName, "/", ":")+":"+ns, signerName, two.anchor())

	name, signer := ns, signerName
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "certified"},
		Spec: corev1.PodSpec{
			NodeName:   n.Name,
			Containers: []corev1.Container{{Name: "hello", Image: images.Hello, VolumeMounts: []corev1.VolumeMount{{Name: "certs", MountPath: "/certs"}}}},
			Volumes: []corev1.Volume{{Name: "certs", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: &name, Path: "one.pem"}},
				{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "live"}}, Path: "two.pem"}},
				{PodCertificate: &corev1.PodCertificateProjection{SignerName: signerName, KeyType: "ECDSAP256", CredentialBundlePath: "own.pem"}},
			}}}}},
		},
	}
	if _, err := cp.Admin.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, usual, "the request for a certificate", two.sign)
	harness.Eventually(t, usual, "the pod to run", func(ctx context.Context) (err error) {
		if pod, err = cp.Admin.CoreV1().Pods(ns).Get(ctx, "certified", metav1.GetOptions{}); err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	read := func(ctx context.Context, path string) (string, error) {
		code, text, err := ask(ctx, "GET", pod, "/file?path="+path)
		if err == nil && code != 200 {
			err = fmt.Errorf("%d %s", code, text)
		}
		return text, err
	}
	shows := func(path, want string) {
		t.Helper()
		harness.Eventually(t, usual, path, func(ctx context.Context) error {
			got, err := read(ctx, path)
			if err == nil && got != want {
				err = errors.New(got)
			}
			return err
		})
	}
	shows("/certs/one.pem", one.anchor())
	shows("/certs/two.pem", two.anchor())
	own, err := read(t.Context(), "/certs/own.pem")
	if err != nil {
		t.Fatal(err)
	}
	if pair, err := tls.X509KeyPair([]byte(own), []byte(own)); err != nil {
		t.Error(err)
	} else if err := pair.Leaf.CheckSignatureFrom(two.cert); err != nil || pair.Leaf.Subject.CommonName != "certified" {
		t.Errorf("%s: %v", pair.Leaf.Subject, err)
	}

	// Another life of volume has no key, and asks for another certificate; until that
	// comes, the files stay.
	n.Kill(t, "volume")
	harness.Eventually(t, usual, "another request", func(ctx context.Context) error {
		waiting, err := two.requests(ctx)
		if err == nil && len(waiting) != 1 {
			err = fmt.Errorf("%d requests wait", len(waiting))
		}
		return err
	})
	if now, err := read(t.Context(), "/certs/own.pem"); err != nil || now != own {
		t.Errorf("the pod's files after a kill: %v, %s", err, now)
	}
	harness.Eventually(t, usual, "the other request", two.sign)
	harness.Eventually(t, usual, "another certificate", func(ctx context.Context) error {
		now, err := read(ctx, "/certs/own.pem")
		if err == nil && now == own {
			err = errors.New("it is the same")
		}
		return err
	})
	byName.Spec.TrustBundle = two.anchor()
	if _, err := bundles.Update(t.Context(), byName, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	shows("/certs/one.pem", two.anchor())
}
