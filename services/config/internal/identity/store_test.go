// SPDX-License-Identifier: Apache-2.0

package identity

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
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/keyutil"

	"github.com/sextant-node/sextant/test/uids"
)

// issue makes a certificate of node n1, and its key, as PEM.
func issue(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "system:node:n1"}, NotBefore: time.Now(), NotAfter: time.Now().Add(hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// TestStoreIsReadByAKubelet: the files are the kubelet's, and so is what is read.
func TestStoreIsReadByAKubelet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki", "own")
	s := newStore(dir)
	kubelets, err := certificate.NewFileStore(pairPrefix, dir, dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range []func(cert, key []byte) error{
		func(cert, key []byte) error { _, err := s.update(cert, key); return err },
		func(cert, key []byte) error { _, err := kubelets.Update(cert, key); return err },
		func(cert, key []byte) error { _, err := s.update(cert, key); return err },
	} {
		cert, key := issue(t)
		if err := write(cert, key); err != nil {
			t.Fatal(err)
		}
		theirs, err := kubelets.Current()
		if err != nil {
			t.Fatal(err)
		}
		pair, leaf, err := s.current("n1")
		if err != nil || leaf == nil || !leaf.Equal(theirs.Leaf) || !bytes.Contains(cert, bytes.TrimSpace(pair[:bytes.IndexByte(pair, '\n')])) {
			t.Errorf("%v, %v; a kubelet reads %v", leaf, err, theirs.Leaf)
		}
	}
	if _, _, err := s.current("n2"); err == nil || !strings.Contains(err.Error(), "not of this node") {
		t.Errorf("another node's: %v", err)
	}
}

// TestStoreFindsAKubelets: where nobody has laid out a folder, the certificate of a
// kubelet is in the one above, in one file or in two.
func TestStoreFindsAKubelets(t *testing.T) {
	for name, files := range map[string]func(cert, key []byte) map[string][]byte{
		"one file": func(cert, key []byte) map[string][]byte {
			return map[string][]byte{"-current.pem": append(cert, key...)}
		},
		"two files": func(cert, key []byte) map[string][]byte { return map[string][]byte{".crt": cert, ".key": key} },
	} {
		pki := t.TempDir()
		for suffix, data := range files(issue(t)) {
			if err := os.WriteFile(filepath.Join(pki, pairPrefix+suffix), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, leaf, err := newStore(filepath.Join(pki, "own")).current("n1"); err != nil || leaf == nil {
			t.Errorf("%s: %v, %v", name, leaf, err)
		}
	}
}

// TestStoreAmongStrangers: another uid may make names where the certificate is kept, as
// a shared folder lets it, before and while there is a new certificate. It learns
// nothing, and what it made is not used.
func TestStoreAmongStrangers(t *testing.T) {
	const config, nodeapi = 64202, 64208
	shared := func(t *testing.T, mode os.FileMode) string {
		dir := filepath.Join(uids.Folder(t), "pki")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, config, nodeapi); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	uids.Each(t, func(t *testing.T) {
		dir := shared(t, os.ModeSticky|0o770)
		cache := filepath.Join(dir, "cache", "x")
		theirs := func() {
			_ = os.Mkdir(filepath.Dir(cache), 0o755)
			if f, err := os.OpenFile(cache, os.O_CREATE, 0); err == nil {
				_ = f.Chmod(0o666)
				_ = f.Close()
			}
			for i := range 3 {
				name := pairPrefix + "-" + time.Now().Add(time.Duration(i)*time.Second).Format("2006-01-02-15-04-05") + ".pem"
				for _, suffix := range []string{"", ".tmp"} {
					_ = os.Symlink("cache/x", filepath.Join(dir, name+suffix)) // or it is there
				}
			}
			_ = os.Symlink("cache/x", filepath.Join(dir, pairPrefix+".key.tmp"))
		}
		cert, key := issue(t)
		uids.During(t, nodeapi, theirs, func() {
			for range 20 {
				if err := uids.As(config, func() error { _, err := newStore(dir).update(cert, key); return err }); err == nil || !strings.Contains(err.Error(), "alone may write") {
					t.Errorf("a certificate among strangers: %v", err)
				}
				if err := uids.As(config, func() error { _, _, err := newStore(dir).pendingKey(); return err }); err == nil || !strings.Contains(err.Error(), "alone may write") {
					t.Errorf("a key among strangers: %v", err)
				}
			}
		})
		if data, err := os.ReadFile(cache); err != nil || len(data) > 0 {
			t.Errorf("the stranger has %d bytes, %v", len(data), err)
		}
	})
	uids.Each(t, func(t *testing.T) {
		// The folder is its own now, and what another uid left in it is not.
		dir := shared(t, 0o700)
		cert, key := issue(t)
		for _, name := range []string{pairPrefix + ".key.tmp", pairPrefix + "-current.pem"} {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, append(cert, key...), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(path, nodeapi, nodeapi); err != nil {
				t.Fatal(err)
			}
		}
		if err := uids.As(config, func() error {
			if _, _, err := newStore(dir).current("n1"); err == nil || !strings.Contains(err.Error(), "belongs to uid 64208") {
				t.Errorf("another uid's certificate: %v", err)
			}
			_, data, err := newStore(dir).pendingKey()
			if bytes.Equal(data, append(cert, key...)) {
				t.Error("another uid's key")
			}
			if err != nil {
				return err
			}
			_, again, err := newStore(dir).pendingKey()
			if !bytes.Equal(again, data) {
				t.Error("the key of the request under way is not found again")
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	})
}
