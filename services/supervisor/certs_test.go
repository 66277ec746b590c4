// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/keyutil"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/uids"
)

// agents are who has a certificate folder, one after the other.
type agents struct {
	*testing.T
	certFolder
}

func newAgents(t *testing.T) *agents {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	return &agents{t, certFolder{dir: filepath.Join(uids.Folder(t), "pki"), config: Account{64202, 64202}, nodeapi: Account{64208, 64208}}}
}

// rotates has whoever uses a folder as a kubelet does store a certificate there.
func (a *agents) rotates(dir, prefix string) (serial string) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "n"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		a.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		a.Fatal(err)
	}
	files, err := certificate.NewFileStore(prefix, dir, dir, "", "")
	if err != nil {
		a.Fatal(err)
	}
	if _, err := files.Update(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM); err != nil {
		a.Fatal(err)
	}
	return template.SerialNumber.String()
}

// reads is the certificate in use as whoever looks into a folder finds it.
func (a *agents) reads(dir, prefix string) string {
	a.Helper()
	files, err := certificate.NewFileStore(prefix, dir, dir, "", "")
	if err != nil {
		a.Fatal(err)
	}
	have, err := files.Current()
	if err != nil {
		a.Fatal(err)
	}
	return have.Leaf.SerialNumber.String()
}

// lays lays the folder out, twice, for it is done at each start.
func (a *agents) lays() {
	a.Helper()
	for range 2 {
		if err := a.ensure(); err != nil {
			a.Fatal(err)
		}
	}
}

// tree lists what is below the folder, with who owns it.
func (a *agents) tree() map[string]uint32 {
	a.Helper()
	found := map[string]uint32{}
	if err := filepath.WalkDir(a.dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.Type().IsRegular() {
			rel, relErr := filepath.Rel(a.dir, path)
			found[rel] = uids.Owner(a.T, path)
			err = errors.Join(err, relErr)
		}
		return err
	}); err != nil {
		a.Fatal(err)
	}
	return found
}

// TestCertificatesChangeHands: from a kubelet to the services, which renew them, back,
// and to the services again. Each finds the newest under the kubelet's names, and the
// two services share no folder.
func TestCertificatesChangeHands(t *testing.T) {
	a := newAgents(t)
	a.lays() // a node that has none
	for _, name := range []string{"kubelet-client-current.pem", "kubelet-server-current.pem", "kubelet.crt", "kubelet.key"} {
		if to, err := os.Readlink(filepath.Join(a.dir, name)); err != nil || !strings.HasPrefix(to, "sextant-") {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
	if err := a.remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(a.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	own := map[string]house.Service{"kubelet-client": house.Config, "kubelet-server": house.NodeAPI}
	kubelet := func() map[string]string {
		newest := map[string]string{}
		for prefix := range own {
			newest[prefix] = a.rotates(a.dir, prefix)
		}
		return newest
	}
	want := kubelet()
	for _, name := range []string{"kubelet.crt", "kubelet.key", "kubelet-client.key.tmp"} {
		if err := os.WriteFile(filepath.Join(a.dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		for prefix, s := range own {
			if got := a.reads(a.dir, prefix); got != want[prefix] {
				t.Errorf("%s: %s: the kubelet's names lead to %s, want %s", when, prefix, got, want[prefix])
			}
			if got := a.reads(house.CertDir(a.dir, s), prefix); got != want[prefix] {
				t.Errorf("%s: %s: %s has %s, want %s", when, prefix, s, got, want[prefix])
			}
		}
		for path, owner := range a.tree() {
			account := map[string]uint32{"sextant-config": a.config.UID, "sextant-nodeapi": a.nodeapi.UID}[filepath.Dir(path)]
			if account == 0 || owner != account {
				t.Errorf("%s: %s belongs to %d", when, path, owner)
			}
		}
	}
	a.lays()
	check("taken over")
	for prefix, s := range own {
		want[prefix] = a.rotates(house.CertDir(a.dir, s), prefix)
	}
	a.lays()
	check("renewed")
	if data, err := os.ReadFile(filepath.Join(a.dir, "kubelet.key")); err != nil || string(data) != "kubelet.key" {
		t.Errorf("kubelet.key: %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(house.CertDir(a.dir, house.Config), "kubelet-client.key.tmp")); err != nil {
		t.Errorf("the key of a request under way: %v", err)
	}
	// A kubelet writes with root's rights, through the links where it has no other way.
	if err := os.WriteFile(filepath.Join(a.dir, "kubelet.crt"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	want = kubelet()
	for prefix := range own {
		if got := a.reads(a.dir, prefix); got != want[prefix] {
			t.Errorf("the kubelet again: %s", got)
		}
	}
	a.lays()
	check("taken over again")
	if info, err := os.Stat(a.dir); err != nil || info.Mode().Perm() != 0o755 || uids.Owner(t, a.dir) != 0 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	if err := a.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(a.dir, "kubelet.key")); !os.IsNotExist(err) {
		t.Errorf("kubelet.key after purging: %v", err)
	}
	if got := a.reads(a.dir, "kubelet-client"); got != want["kubelet-client"] {
		t.Error("the cluster's certificate is gone with the agent")
	}
}

// TestCertificateWithTwoNames: a kubelet's certificate that a backup by hard links (cp -al)
// has given another name stays where it is, and is found.
func TestCertificateWithTwoNames(t *testing.T) {
	a := newAgents(t)
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	want := a.rotates(a.dir, "kubelet-client")
	names, err := filepath.Glob(filepath.Join(a.dir, "kubelet-client-20*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	backup := filepath.Join(filepath.Dir(a.dir), "backup")
	if err := os.Link(names[0], backup); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		a.lays()
		for _, dir := range []string{a.dir, house.CertDir(a.dir, house.Config)} {
			if _, err := os.ReadFile(filepath.Join(dir, "kubelet-client-current.pem")); err != nil {
				t.Errorf("%s: there is no credential: %v", when, err)
			} else if got := a.reads(dir, "kubelet-client"); got != want {
				t.Errorf("%s: %s has %s, want %s", when, dir, got, want)
			}
		}
	}
	check("two names")
	if owner := uids.Owner(t, backup); owner != 0 {
		t.Errorf("the backup belongs to uid %d", owner)
	}
	if err := os.Remove(backup); err != nil {
		t.Fatal(err)
	}
	check("one name")
	for path, owner := range a.tree() {
		if filepath.Dir(path) != "sextant-config" || owner != a.config.UID {
			t.Errorf("with one name: %s belongs to %d", path, owner)
		}
	}
}

// TestSharedCertificateFolder: an earlier version shared the folder between config and
// nodeapi. What either made stays its own, and nothing that nodeapi left there becomes
// config's or is followed.
func TestSharedCertificateFolder(t *testing.T) {
	for _, planted := range []string{"nothing", "files", "a folder", "a link", "other names of files of root's"} {
		t.Run(planted, func(t *testing.T) {
			a := newAgents(t)
			if err := os.MkdirAll(a.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			serials := map[string]string{}
			for prefix, owner := range map[string]Account{"kubelet-client": a.config, "kubelet-server": a.nodeapi} {
				serials[prefix] = a.rotates(a.dir, prefix)
				names, err := filepath.Glob(filepath.Join(a.dir, prefix+"*"))
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					if err := os.Lchown(name, int(owner.UID), int(owner.GID)); err != nil {
						t.Fatal(err)
					}
				}
			}
			secret := filepath.Join(filepath.Dir(a.dir), "secret")
			if err := os.WriteFile(secret, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Chown(a.dir, int(a.config.UID), int(a.nodeapi.GID)), os.Chmod(a.dir, fs.ModeSticky|0o770)); err != nil {
				t.Fatal(err)
			}
			in := func(name string) string { return filepath.Join(a.dir, name) }
			if err := uids.As(a.nodeapi.UID, func() error {
				switch planted {
				case "files":
					return errors.Join(os.WriteFile(in("kubelet-client.key.tmp"), nil, 0o644), os.WriteFile(in("kubelet-client-2100.pem"), nil, 0o644))
				case "a folder":
					return errors.Join(os.Mkdir(in("sextant-config"), 0o777), os.WriteFile(in("sextant-config/kubelet-client.key.tmp"), nil, 0o644))
				case "a link":
					return errors.Join(os.Mkdir(in("x"), 0o777), os.Symlink("x", in("sextant-config")), os.Symlink("x/y", in("kubelet.crt")))
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if planted == "other names of files of root's" { // as a kernel without protected_hardlinks lets it
				if err := errors.Join(os.Link(secret, in("kubelet-client-2100.pem")), os.Link(secret, in("kubelet.key"))); err != nil {
					t.Fatal(err)
				}
			}
			a.lays()
			for prefix, want := range serials {
				if got := a.reads(a.dir, prefix); got != want {
					t.Errorf("%s: %s, want %s", prefix, got, want)
				}
			}
			if owner := uids.Owner(t, secret); owner != 0 {
				t.Errorf("root's file belongs to uid %d", owner)
			}
			of := a.tree()
			names := slices.Sorted(maps.Keys(of))
			for _, name := range names {
				in := filepath.Dir(name)
				if in == "sextant-config" && (of[name] != a.config.UID || !strings.HasPrefix(filepath.Base(name), "kubelet-client-20") || strings.HasSuffix(name, "2100.pem")) {
					t.Errorf("config has %s of uid %d among %v", name, of[name], names)
				}
			}
			if info, err := os.Lstat(house.CertDir(a.dir, house.Config)); err != nil || info.Mode() != fs.ModeDir|0o700 || uids.Owner(t, house.CertDir(a.dir, house.Config)) != a.config.UID {
				t.Errorf("config's folder: %v, %v", info, err)
			}
		})
	}
}
