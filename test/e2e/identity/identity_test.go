// SPDX-License-Identifier: Apache-2.0

// Package identity_test is about the certificates of a node. They last a minute here,
// and the test waits for the end of several: it has a binary and a control plane of its
// own, and runs beside the others.
package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

const (
	// usual is how long anything may take that takes seconds on a machine at rest.
	usual = time.Minute
	// recovery is how long a node may take after the end of a fault.
	recovery = time.Minute
)

func TestMain(m *testing.M) { harness.Main(m) }

// certified is a node that has its certificates from the API server.
type certified struct {
	*testing.T
	*harness.Node
	cp  *harness.ControlPlane
	pki string
}

// TestIdentity: a token becomes a certificate; certificates that last a minute are
// renewed; one that expired while nothing came through is replaced. No process is
// started again, and the pod does not notice.
func TestIdentity(t *testing.T) {
	cp := harness.StartControlPlane(t)
	hole := cp.StartBlackHole(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubelet.conf")
	n := harness.NewNode(t, harness.NodeOptions{
		ControlPlane: cp,
		Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
			c.RotateCertificates, c.ServerTLSBootstrap = true, true
		},
		Args: []string{"--bootstrap-kubeconfig=" + cp.BootstrapCredentials(t, hole.Server), "--kubeconfig=" + kubeconfig},
	})
	e := &certified{T: t, Node: n, cp: cp, pki: filepath.Join(n.Root, "pki")}
	go e.approve(t.Context())
	n.Up(t)
	harness.Eventually(t, usual, "the node to be Ready", e.ready)
	harness.Eventually(t, usual, "the published kubeconfig", func(context.Context) error { return e.published(kubeconfig) })
	harness.Eventually(t, usual, "a serving certificate", func(context.Context) error {
		_, err := e.serves()
		return err
	})
	e.files()
	n.AddManifest(t, "web.yaml", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: images.Hello}}},
	})
	var pod harness.PodRow
	harness.Eventually(t, usual, "the pod to be ready", func(ctx context.Context) (err error) {
		if pod, err = n.Pod(ctx, "web"); err == nil && pod.Ready != "1/1" {
			err = fmt.Errorf("ready %s", pod.Ready)
		}
		return err
	})
	processes := e.processes()

	client, serving := e.client(), e.serving()
	if client == nil || serving == nil {
		t.Fatal("the certificates are not there any more")
	}
	harness.Eventually(t, 4*time.Minute, "both certificates to be renewed", func(context.Context) error {
		if c, s := e.client(), e.serving(); c == nil || c.Equal(client) || s == nil || s.Equal(serving) {
			return fmt.Errorf("client until %v, serving until %v", client.NotAfter, serving.NotAfter)
		}
		return nil
	})
	harness.Eventually(t, 4*time.Minute, "life after the first certificate's end", func(ctx context.Context) error {
		return e.renewedAfter(ctx, client.NotAfter)
	})

	hole.Shut()
	harness.Eventually(t, 3*time.Minute, "the certificate to expire, and this to be said", func(ctx context.Context) error {
		return e.says(ctx, "client certificate expired at")
	})
	hole.Open()
	opened := time.Now()
	harness.Eventually(t, recovery, "the node to come back by itself", func(ctx context.Context) error {
		return errors.Join(e.renewedAfter(ctx, opened), e.ready(ctx), e.healthy(ctx))
	})
	t.Logf("back %s after the fault", time.Since(opened).Round(100*time.Millisecond))

	if now := e.processes(); !slices.Equal(now, processes) {
		t.Errorf("processes were started again: before %v, now %v", processes, now)
	}
	if now, err := n.Pod(t.Context(), "web"); err != nil || now.UID != pod.UID || now.Restarts != 0 || !slices.Equal(now.Containers, pod.Containers) {
		t.Errorf("the pod was %+v, is %+v (%v)", pod, now, err)
	}
}

// approve is the operator who approves serving certificates of this node, until
// ctx ends. Client certificates the controller manager approves.
func (e *certified) approve(ctx context.Context) {
	requests := e.cp.Admin.CertificatesV1().CertificateSigningRequests()
	for ctx.Err() == nil {
		watch, err := requests.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for event := range watch.ResultChan() {
			r, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || r.Spec.SignerName != certificatesv1.KubeletServingSignerName || r.Spec.Username != "system:node:"+e.Node.Name || len(r.Status.Conditions) > 0 {
				continue
			}
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "by the test",
			}}
			if _, err := requests.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
				e.Logf("approve %s: %v", r.Name, err)
			}
		}
	}
}

func (e *certified) ready(ctx context.Context) error {
	node, err := e.cp.Admin.CoreV1().Nodes().Get(ctx, e.Node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("conditions %+v", node.Status.Conditions)
}

// renewedAfter reports whether the Lease was renewed after a moment.
func (e *certified) renewedAfter(ctx context.Context, at time.Time) error {
	lease, err := e.cp.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, e.Node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !lease.Spec.RenewTime.After(at) {
		return fmt.Errorf("lease renewed at %v", lease.Spec.RenewTime)
	}
	return nil
}

// published looks at the kubeconfig that kubeadm waits for.
func (e *certified) published(path string) error {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return err
	}
	user, current := config.AuthInfos["default-auth"], filepath.Join(e.pki, "kubelet-client-current.pem")
	if user == nil || config.CurrentContext != "default-context" || user.ClientCertificate != current || user.ClientKey != current {
		return fmt.Errorf("%+v", config)
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm() != 0o600 {
		err = fmt.Errorf("mode %v", info.Mode())
	}
	return err
}

// files looks at who owns what in the certificate folder.
func (e *certified) files() {
	e.Helper()
	rows, err := e.Services(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	uids := map[string]int{"root": 0}
	for _, row := range rows {
		uids[row.Service] = row.UID
	}
	for name, service := range map[string]string{
		".": "root", "sextant-config": "config", "sextant-nodeapi": "nodeapi", "kubelet-client-current.pem": "config", "kubelet-server-current.pem": "nodeapi",
	} {
		info, err := os.Stat(filepath.Join(e.pki, name))
		if err != nil {
			e.Error(err)
			continue
		}
		if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != uids[service] {
			e.Errorf("%s is of uid %d, %s runs under %d", name, owner, service, uids[service])
		}
		if want := map[bool]os.FileMode{true: 0o700, false: 0o600}[info.IsDir()]; name != "." && info.Mode().Perm() != want {
			e.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

// client is the client certificate in use; nil while it is being replaced.
func (e *certified) client() *x509.Certificate {
	current := filepath.Join(e.pki, "kubelet-client-current.pem")
	pair, err := tls.LoadX509KeyPair(current, current)
	if err != nil {
		return nil
	}
	return pair.Leaf
}

// serves dials the kubelet API and returns the certificate it shows, if it is one
// of the cluster's for this address.
func (e *certified) serves() (*x509.Certificate, error) {
	ca, err := os.ReadFile(e.cp.ClientCA())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	conn, err := tls.Dial("tcp", net.JoinHostPort(e.IP, strconv.Itoa(e.Port)), &tls.Config{RootCAs: roots})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // only looked at
	return conn.ConnectionState().PeerCertificates[0], nil
}

func (e *certified) serving() *x509.Certificate {
	c, err := e.serves()
	if err != nil {
		return nil
	}
	return c
}

func (e *certified) processes() []string {
	e.Helper()
	rows, err := e.Services(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	var all []string
	for _, row := range rows {
		all = append(all, row.Service+" "+strconv.Itoa(row.PID))
	}
	return all
}

// says reports whether config says something of itself.
func (e *certified) says(ctx context.Context, part string) error {
	rows, err := e.Services(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Service == "config" && strings.Contains(row.Reason, part) {
			return nil
		}
	}
	return fmt.Errorf("services %+v", rows)
}

func (e *certified) healthy(ctx context.Context) error {
	rows, err := e.Services(ctx)
	for _, row := range rows {
		if row.Health != "serving" {
			err = errors.Join(err, fmt.Errorf("%s is %s: %s", row.Service, row.Health, row.Reason))
		}
	}
	return err
}
