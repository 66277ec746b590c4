// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// SignedFor is how long the controller manager's certificates last; it dates
// them back by five minutes, as always.
const SignedFor = "60s"

// nodeBootstrappers is the group of the tokens that kubeadm makes.
const nodeBootstrappers = "system:bootstrappers:kubeadm:default-node-token"

// BootstrapCredentials writes a bootstrap kubeconfig with a new token, that may
// ask for a node's first certificate, for an API server at that URL. The rights
// are those kubeadm gives.
func (c *ControlPlane) BootstrapCredentials(t testing.TB, server string) string {
	t.Helper()
	for name, grant := range map[string][2]string{ // role, group
		"kubeadm:kubelet-bootstrap":                     {"system:node-bootstrapper", nodeBootstrappers},
		"kubeadm:node-autoapprove-bootstrap":            {"system:certificates.k8s.io:certificatesigningrequests:nodeclient", nodeBootstrappers},
		"kubeadm:node-autoapprove-certificate-rotation": {"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	} {
		_, err := c.Admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: grant[0]},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: grant[1]}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	id, secret := word(t, 3), word(t, 8)
	_, err := c.Admin.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
			"auth-extra-groups": nodeBootstrappers,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.ca.pem}
	config.AuthInfos["tls-bootstrap-token-user"] = &clientcmdapi.AuthInfo{Token: id + "." + secret}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "tls-bootstrap-token-user"}
	config.CurrentContext = "lab"
	path := filepath.Join(t.TempDir(), "bootstrap-kubelet.conf")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// word is random and of letters and digits, two for each byte.
func word(t testing.TB, bytes int) string {
	t.Helper()
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// BlackHole is a way to the API server on which nothing arrives while it is shut:
// what is sent stays unanswered, as with packets that are dropped.
type BlackHole struct {
	// Server is the URL of the way.
	Server string

	mu   sync.Mutex
	open chan struct{} // closed while it is open
}

// StartBlackHole opens a way to the API server that ends with the test.
func (c *ControlPlane) StartBlackHole(t testing.TB) *BlackHole {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &BlackHole{Server: "https://" + listener.Addr().String(), open: make(chan struct{})}
	close(b.open)
	ctx, cancel := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { b.carry(ctx, from, strings.TrimPrefix(c.Server, "https://")) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close() // the connections end with ctx
		conns.Wait()
	})
	return b
}

// Shut makes everything on its way stay there until Open.
func (b *BlackHole) Shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = make(chan struct{})
}

// Open lets everything through again.
func (b *BlackHole) Open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.open)
}

func (b *BlackHole) pass(ctx context.Context) {
	b.mu.Lock()
	open := b.open
	b.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-open:
	}
}

// carry is one connection.
func (b *BlackHole) carry(ctx context.Context, from net.Conn, address string) {
	defer from.Close() //nolint:errcheck // it was cut
	b.pass(ctx)
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer to.Close() //nolint:errcheck // it was cut
	stop := context.AfterFunc(ctx, func() {
		_ = from.Close()
		_ = to.Close()
	})
	defer stop()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{to, from}, {from, to}} {
		go func() {
			_, _ = io.Copy(gated{way[0], b, ctx}, way[1]) // it ends when either side does
			done <- struct{}{}
		}()
	}
	<-done
}

// gated writes when the way is open.
type gated struct {
	net.Conn
	hole *BlackHole
	ctx  context.Context
}

// Write implements io.Writer.
func (g gated) Write(p []byte) (int, error) {
	g.hole.pass(g.ctx)
	return g.Conn.Write(p)
}
