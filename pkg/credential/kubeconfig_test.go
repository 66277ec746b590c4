// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// pair is a certificate and its key, as PEM.
func pair(t *testing.T, name string, from, to time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(from.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func kubeconfig(cluster, user string) string {
	return `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"` + cluster + `}}], users: [{name: u, user: {` + user + `}}],
contexts: [{name: c, context: {cluster: c, user: u, namespace: ns}}]}`
}

// TestLoad: what cannot work is said at once, with the files to wait for.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	cert, key := pair(t, "a", now, now.Add(time.Hour))
	_, other := pair(t, "b", now, now.Add(time.Hour))
	for name, data := range map[string][]byte{"bad.pem": []byte("no certificate"), "c.crt": cert, "c.key": key, "other.key": other, "pair.pem": append(bytes.Clone(cert), key...), "token": []byte("secret\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("pair.pem", filepath.Join(dir, "current.pem")); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		text, err string
		files     []string
	}{
		"no credentials needed":      {text: kubeconfig("", "")},
		"certificate, relative":      {text: kubeconfig(", certificate-authority: c.crt", "client-certificate: c.crt, client-key: c.key"), files: []string{"c.crt", "c.crt", "c.key"}},
		"kubelet's pair by a link":   {text: kubeconfig("", "client-certificate: current.pem, client-key: current.pem"), files: []string{"current.pem", "current.pem"}},
		"token file":                 {text: kubeconfig("", "tokenFile: token"), files: []string{"token"}},
		"exec":                       {text: kubeconfig("", "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}")},
		"missing certificate":        {text: kubeconfig("", "client-certificate: nowhere.pem, client-key: nowhere.pem"), err: "nowhere.pem"},
		"missing CA":                 {text: kubeconfig(", certificate-authority: nowhere.pem", ""), err: "nowhere.pem"},
		"CA is no certificate":       {text: kubeconfig(", certificate-authority: bad.pem", ""), err: "holds no certificate"},
		"key of another certificate": {text: kubeconfig("", "client-certificate: c.crt, client-key: other.key"), err: "client-certificate"},
		"no context":                 {text: `{apiVersion: v1, kind: Config}`, err: "no configuration"},
		"unknown context":            {text: `{apiVersion: v1, kind: Config, current-context: x}`, err: "context: x"},
		"empty":                      {text: ``, err: "no configuration"},
		"not YAML":                   {text: `{`, err: "kubeconfig"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			k, files, err := Load(path)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := []string{path}
			for _, f := range c.files {
				want = append(want, filepath.Join(dir, f))
			}
			if !slices.Equal(files, want) {
				t.Errorf("files %q, want %q", files, want)
			}
			data, err := k.Encode()
			if err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.RESTConfigFromKubeConfig(data)
			if err != nil {
				t.Fatal(err)
			}
			if config.CertFile+config.KeyFile+config.CAFile+config.BearerTokenFile != "" {
				t.Errorf("another file is needed: %+v", config)
			}
			if strings.Contains(name, "token") && config.BearerToken != "secret" {
				t.Errorf("token %q", config.BearerToken)
			}
		})
	}
	if _, files, err := Load(filepath.Join(dir, "absent")); err == nil || len(files) != 1 {
		t.Errorf("absent: %q, %v", files, err)
	}
}

// TestPublished: what is written after a bootstrap has the kubelet's names, and
// loads as the certificate the file has at that time.
func TestPublished(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bootstrap.conf")
	if err := os.WriteFile(path, []byte(kubeconfig("", "token: t")), 0o600); err != nil {
		t.Fatal(err)
	}
	bootstrap, _, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	pairFile := filepath.Join(dir, "kubelet-client-current.pem")
	data, err := bootstrap.Published(pairFile)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	user := config.AuthInfos["default-auth"]
	if config.CurrentContext != "default-context" || config.Clusters["default-cluster"] == nil ||
		config.Contexts["default-context"].Namespace != "ns" || user == nil || user.ClientCertificate != pairFile || user.ClientKey != pairFile || user.Token != "" {
		t.Errorf("published\n%s", data)
	}
	now := time.Now()
	for _, name := range []string{"first", "second"} {
		cert, key := pair(t, name, now, now.Add(time.Hour))
		both := append(cert, key...)
		if err := os.WriteFile(pairFile, both, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		k, _, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if k.Leaf().Subject.CommonName != name || k.CertificateFile() != pairFile || k.IsAnonymous() {
			t.Errorf("certificate of %s", k.Leaf().Subject)
		}
		fromFile, err := k.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if made, err := bootstrap.WithCertificate(both).Encode(); err != nil || !bytes.Equal(fromFile, made) {
			t.Error("the same credential from the file and from the certificate differ")
		}
	}
}

// TestRenewal: between 70 and 90 % of the life, the same each time.
func TestRenewal(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := map[time.Time]bool{}
	for range 20 {
		pemCert, _ := pair(t, "n", start, start.Add(100*time.Hour))
		block, _ := pem.Decode(pemCert)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		at := LifeOf(cert).Renewal()
		if at != LifeOf(cert).Renewal() {
			t.Error("the same certificate has two deadlines")
		}
		if after := at.Sub(start); after < 70*time.Hour || after > 90*time.Hour {
			t.Errorf("renewal after %v of 100 h", after)
		}
		seen[at] = true
	}
	if len(seen) < 15 {
		t.Errorf("%d different deadlines of 20 certificates", len(seen))
	}
}
