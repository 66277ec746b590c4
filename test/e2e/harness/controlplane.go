// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// ControlPlane is etcd, an API server and a controller manager on loopback,
// shared by the tests of a binary. There is no scheduler: tests bind pods
// themselves. Tests keep apart by namespace and node name.
type ControlPlane struct {
	// Admin is a client with every right.
	Admin kubernetes.Interface
	// Server is the API server's URL, KubeConfig the file with Admin's credentials.
	Server, KubeConfig string

	lab  *Lab
	dir  string
	ca   *authority
	args []string
	api  *process
	// controllers is the controller manager.
	controllers *process
}

// apiServerEnv is the variable of the environment that names the minor of the API server and
// the controller manager, as in "1.37", one of test/env/kubernetes-MINOR; empty for that of
// test/env/kubernetes.
const apiServerEnv = "SEXTANT_API_SERVER"

// StartControlPlane returns the control plane of the lab once it serves and has
// made the default service account.
func StartControlPlane(t testing.TB) *ControlPlane {
	t.Helper()
	lab := The(t)
	return lab.controlPlane.get(t, "start the control plane", func() (*ControlPlane, error) {
		return newControlPlane(context.Background(), lab)
	})
}

func newControlPlane(ctx context.Context, lab *Lab) (*ControlPlane, error) {
	c := &ControlPlane{lab: lab, dir: filepath.Join(lab.Dir, "cp")}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	etcd, err := c.startEtcd(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.makeCredentials(); err != nil {
		return nil, err
	}
	c.args = append(c.args, "--etcd-servers="+etcd)
	if err := c.startAPIServer(ctx); err != nil {
		return nil, err
	}
	return c, c.startControllers(ctx)
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.dir, name) }

// run starts one of the programs and ends it at the end of the lab.
func (c *ControlPlane) run(name string, args ...string) (*process, error) {
	part := "control-plane"
	if minor := os.Getenv(apiServerEnv); minor != "" && strings.HasPrefix(name, "kube-") {
		part += "-" + minor
	}
	bin, err := c.lab.tool(part, name)
	if err != nil {
		return nil, err
	}
	p, err := start(name, c.file(name+".log"), bin, args...)
	if err == nil {
		c.lab.atEnd(p.kill)
	}
	return p, err
}

func (c *ControlPlane) startEtcd(ctx context.Context) (url string, err error) {
	client, err := c.lab.port("127.0.0.1")
	if err != nil {
		return "", err
	}
	peer, err := c.lab.port("127.0.0.1")
	if err != nil {
		return "", err
	}
	clientURL, peerURL := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	p, err := c.run("etcd", "--data-dir="+c.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+clientURL, "--advertise-client-urls="+clientURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL)
	if err != nil {
		return "", err
	}
	return clientURL, p.ready(ctx, 4*time.Minute, func(ctx context.Context) error {
		return get(ctx, clientURL+"/health")
	})
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

const serviceRange, serviceIP = "10.255.0.0/24", "10.255.0.1"

// makeCredentials writes certificates, keys and kubeconfigs, and the API
// server's arguments that name them.
func (c *ControlPlane) makeCredentials() error {
	port, err := c.lab.port("127.0.0.1")
	if err != nil {
		return err
	}
	if c.ca, err = newAuthority(c.dir); err != nil {
		return err
	}
	c.Server = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	c.KubeConfig = c.file("admin.kubeconfig")
	err = errors.Join(
		c.ca.files("apiserver", "kube-apiserver", nil, "127.0.0.1", serviceIP, "localhost", "kubernetes", "kubernetes.default.svc"),
		c.ca.files("kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"}),
		c.ca.files("front-proxy", "front-proxy", nil),
		c.ca.files("service-account", "service-account", nil),
		c.ca.kubeconfig(c.KubeConfig, c.Server, "admin", "system:masters"),
		c.ca.kubeconfig(c.file("controllers.kubeconfig"), c.Server, "system:kube-controller-manager"),
	)
	c.args = append(c.args,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file="+c.file("apiserver.crt"), "--tls-private-key-file="+c.file("apiserver.key"),
		"--client-ca-file="+c.file("ca.crt"),
		"--kubelet-client-certificate="+c.file("kubelet-client.crt"), "--kubelet-client-key="+c.file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		// For API servers behind this one.
		"--requestheader-client-ca-file="+c.file("ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.file("front-proxy.crt"), "--proxy-client-key-file="+c.file("front-proxy.key"), "--enable-aggregator-routing",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.file("service-account.key"),
		"--service-account-signing-key-file="+c.file("service-account.key"),
		"--service-cluster-ip-range="+serviceRange,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		// For what nodes do only behind gates.
		"--runtime-config=certificates.k8s.io/v1beta1=true", "--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true",
		"--enable-bootstrap-token-auth", "--endpoint-reconciler-type=none", "--allow-privileged", "--profiling=false",
	)
	return err
}

func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	var err error
	if c.api, err = c.run("kube-apiserver", c.args...); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.KubeConfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 200, 400
	admin, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	c.Admin = admin
	if err := c.api.ready(ctx, 4*time.Minute, func(ctx context.Context) error {
		return admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	version, err := admin.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	if minor := os.Getenv(apiServerEnv); minor != "" && !strings.HasPrefix(version.GitVersion, "v"+minor+".") {
		return fmt.Errorf("the API server is %s, %s=%s", version.GitVersion, apiServerEnv, minor)
	}
	c.lab.seen.Add("API server " + version.GitVersion)
	return nil
}

func (c *ControlPlane) startControllers(ctx context.Context, flags ...string) error {
	p, err := c.run("kube-controller-manager", append([]string{"--kubeconfig=" + c.file("controllers.kubeconfig"),
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials", "--controllers=*,bootstrapsigner",
		"--root-ca-file=" + c.file("ca.crt"), "--service-account-private-key-file=" + c.file("service-account.key"),
		"--cluster-signing-cert-file=" + c.file("ca.crt"), "--cluster-signing-key-file=" + c.file("ca.key"),
		"--cluster-signing-duration=" + SignedFor}, flags...)...)
	if err != nil {
		return err
	}
	c.controllers = p
	return p.ready(ctx, 3*time.Minute, func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Stop ends the API server, as an outage would; Resume brings it back on the
// same address with the same objects.
func (c *ControlPlane) Stop(t testing.TB) {
	t.Helper()
	if err := c.api.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Resume starts the API server again after Stop.
func (c *ControlPlane) Resume(t testing.TB) {
	t.Helper()
	if err := c.startAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Running reports whether the API server has not been stopped.
func (c *ControlPlane) Running() bool { return !c.api.ended() }

// StopControllers ends the controller manager. One that has not heard of a node
// while the API server was away takes it for dead as soon as that is back, before
// it has looked again; and it waits up to a minute before it looks.
func (c *ControlPlane) StopControllers(t testing.TB) {
	t.Helper()
	if err := c.controllers.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// StartControllers begins a new controller manager after StopControllers, with
// flags besides those it always has.
func (c *ControlPlane) StartControllers(t testing.TB, flags ...string) {
	t.Helper()
	if err := c.startControllers(t.Context(), flags...); err != nil {
		t.Fatal(err)
	}
}

// NodeCredentials writes a kubeconfig for the node agent of that name.
func (c *ControlPlane) NodeCredentials(t testing.TB, node string) string {
	t.Helper()
	return c.nodeCredentials(t, node, c.Server)
}

func (c *ControlPlane) nodeCredentials(t testing.TB, node, server string) string {
	t.Helper()
	path := c.file("node-" + node + ".kubeconfig")
	if err := c.ca.kubeconfig(path, server, "system:node:"+node, "system:nodes"); err != nil {
		t.Fatal(err)
	}
	return path
}

// ClientCA is the file with the authority that signs the API server's own
// client certificate, for a node's --client-ca-file.
func (c *ControlPlane) ClientCA() string { return c.file("ca.crt") }

// ClientCertificateUntil is one of a user of this cluster that ends at a time.
func (c *ControlPlane) ClientCertificateUntil(t testing.TB, until time.Time, user string, groups ...string) *tls.Certificate {
	t.Helper()
	pair, err := c.ca.clientPair(until, user, groups)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// Kubectl runs kubectl as admin and returns what it printed.
func (c *ControlPlane) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.kubectl(t.Context(), args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryKubectl is Kubectl for where a failure is part of the answer.
func (c *ControlPlane) TryKubectl(ctx context.Context, args ...string) string {
	out, err := c.kubectl(ctx, args...)
	if err != nil {
		return out + err.Error()
	}
	return out
}

func (c *ControlPlane) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd, err := c.KubectlCommand(ctx, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// KubectlCommand is kubectl as admin, not yet started.
func (c *ControlPlane) KubectlCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	bin, err := c.lab.tool("control-plane", "kubectl")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, append([]string{"--kubeconfig=" + c.KubeConfig}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir) // its cache
	return cmd, nil
}

// Namespace makes a namespace for one test and waits for its service account. The
// controller that makes it is slow to notice the end of an outage.
func (c *ControlPlane) Namespace(t testing.TB) string {
	t.Helper()
	ns, err := c.Admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Admin.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	Eventually(t, 4*time.Minute, "the default service account of "+ns.Name, func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}
