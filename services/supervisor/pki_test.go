// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

// TestPublishKubeconfig: written once there is a certificate, and again only
// when what is there is of no use; what the operator gave stays.
func TestPublishKubeconfig(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("n1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	write("own.crt", certPEM)
	write("own.key", keyPEM)
	kubeconfig := func(user string) []byte {
		return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
users: [{name: u, user: {%s}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, user)
	}
	p := &Plan{KubeConfig: path("kubelet.conf"), Bootstrap: path("bootstrap.conf"), CertDir: dir}
	now := time.Now()
	publish := func(what string, at time.Time, want bool) {
		t.Helper()
		written, err := p.PublishKubeconfig(at)
		if err != nil || written != want {
			t.Errorf("%s: written %v, %v", what, written, err)
		}
	}
	write("bootstrap.conf", kubeconfig("token: t"))
	publish("no certificate yet", now, false)
	write("kubelet-client-current.pem", append(append([]byte{}, certPEM...), keyPEM...))
	publish("a certificate", now, true)
	published, err := clientcmd.LoadFromFile(p.KubeConfig)
	if err != nil {
		t.Fatal(err)
	}
	if user := published.AuthInfos["default-auth"]; user == nil || user.ClientCertificate != pairFile(p.CertDir) || user.ClientKey != pairFile(p.CertDir) || user.Token != "" {
		t.Errorf("published %+v", published.AuthInfos)
	}
	if err := os.Remove(p.Bootstrap); err != nil { // as kubeadm does
		t.Fatal(err)
	}
	publish("it is there", now, false)
	publish("it is there, the certificate expired", now.Add(3*365*24*time.Hour), false)

	write("bootstrap.conf", kubeconfig("token: t"))
	own := kubeconfig("client-certificate: own.crt, client-key: own.key")
	for name, given := range map[string][]byte{"a certificate of its own": own, "a token": kubeconfig("token: mine")} {
		write("kubelet.conf", given)
		publish(name, now, false)
	}
	write("kubelet.conf", own)
	publish("its own certificate expired", now.Add(3*365*24*time.Hour), true)
	write("kubelet.conf", []byte("{"))
	publish("nonsense", now, true)
	write("kubelet.conf", kubeconfig(""))
	publish("nobody's", now, true)

	write("kubelet.conf", []byte("{"))
	write("bootstrap.conf", []byte("{"))
	if written, err := p.PublishKubeconfig(now); err == nil || written {
		t.Errorf("of a bootstrap kubeconfig that is nonsense: written %v", written)
	}
}

// TestTraversable: kubeadm makes the kubelet's folder for root alone. Services pass through
// it afterwards, podworker as a member of root's group, and none lists it.
func TestTraversable(t *testing.T) {
	for before, want := range map[fs.FileMode]fs.FileMode{0o700: 0o711, 0o701: 0o711, 0o710: 0o711, 0o750: 0o751, 0o755: 0o755, 0o711: 0o711} {
		dir := filepath.Join(t.TempDir(), "kubelet")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, before)); err != nil {
			t.Fatal(err)
		}
		if err := traversable(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%v became %v, %v; want %v", before, info.Mode().Perm(), err, want)
		}
	}
}
