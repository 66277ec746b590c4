// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sextant-node/sextant/pkg/file"
)

// pairPrefix is the kubelet's name of the client certificate's files.
const pairPrefix = "kubelet-client"

// userPrefix before the node's name makes the user's name (node authorizer).
const userPrefix = "system:node:"

// store is the folder with the node's client certificate, in the kubelet's layout.
// It belongs to this process's uid alone (house.CertDir), and so does what is read
// from it: a file that another uid could have made may lead elsewhere.
type store struct{ dir string }

func newStore(dir string) *store { return &store{dir} }

// mostPair bounds a certificate with its chain and key, in bytes.
const mostPair = 1 << 20

// current is the certificate with its key, as PEM, if there is one of this
// node. Another node's, or one that cannot be read, is none; that is an error
// where it stands in the way.
func (s *store) current(node string) (pair []byte, leaf *x509.Certificate, err error) {
	if err := s.ours(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	// The folder above is where a kubelet has it: this one may not be laid out yet.
	for _, dir := range []string{s.dir, filepath.Dir(s.dir)} {
		path := filepath.Join(dir, pairPrefix+"-current.pem")
		pair, err := readPair(dir, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		cert, err := tls.X509KeyPair(pair, pair)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if have := cert.Leaf.Subject.CommonName; have != userPrefix+node {
			return nil, nil, fmt.Errorf("%s is of %q, not of this node", path, have)
		}
		return pair, cert.Leaf, nil
	}
	return nil, nil, nil
}

// readPair reads the pair, which is one file, or two of an older kubelet.
func readPair(dir, current string) ([]byte, error) {
	pair, err := readOwn(current, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return pair, err
	}
	for _, name := range []string{pairPrefix + ".crt", pairPrefix + ".key"} {
		part, err := readOwn(filepath.Join(dir, name), 0)
		if err != nil {
			return nil, err
		}
		pair = append(pair, part...)
	}
	return pair, nil
}

// readOwn reads a file of this uid's or of root's.
func readOwn(path string, flags int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 && int(uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to uid %d: want this service's or root's", path, uid)
	}
	if !info.Mode().IsRegular() || info.Size() > mostPair {
		return nil, fmt.Errorf("%s: mode %v, %d bytes: want a file of at most %d", path, info.Mode(), info.Size(), mostPair)
	}
	return io.ReadAll(f)
}

// ours says why no key may be kept in the folder.
func (s *store) ours() error {
	info, err := os.Lstat(s.dir)
	if err != nil {
		return err
	}
	uid := info.Sys().(*syscall.Stat_t).Uid
	if !info.IsDir() || uid != 0 && int(uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s belongs to uid %d, mode %v: want a folder that this service alone may write to", s.dir, uid, info.Mode())
	}
	return nil
}

// open makes the folder where there is none.
func (s *store) open() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return s.ours()
}

// update makes a certificate the current one. A certificate has a file of its own, as
// with a kubelet; the current one is a link to it.
func (s *store) update(cert, key []byte) (*x509.Certificate, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	chain, err := certutil.ParseCertsPEM(cert) // without what else may stand between them
	if err != nil {
		return nil, err
	}
	pair, err := certutil.EncodeCertificates(chain...)
	if err != nil {
		return nil, err
	}
	pair = append(pair, key...)
	parsed, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(s.dir, pairPrefix+"-"+time.Now().Format("2006-01-02-15-04-05")+".pem")
	current := filepath.Join(s.dir, pairPrefix+"-current.pem")
	if err := file.Replace(name, pair, 0o600); err != nil {
		return nil, err
	}
	if err := file.Link(current, name); err != nil {
		return nil, err
	}
	return parsed.Leaf, nil
}

func (s *store) keyFile() string { return filepath.Join(s.dir, pairPrefix+".key.tmp") }

// pendingKey is the key of the request under way; a new one if there is none
// that can be used.
func (s *store) pendingKey() (key *ecdsa.PrivateKey, data []byte, err error) {
	if err := s.open(); err != nil {
		return nil, nil, err
	}
	if data, err := readOwn(s.keyFile(), unix.O_NOFOLLOW); err == nil {
		parsed, err := keyutil.ParsePrivateKeyPEM(data)
		if key, ok := parsed.(*ecdsa.PrivateKey); ok && err == nil {
			return key, data, nil
		}
	}
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	if data, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, err
	}
	return key, data, file.Replace(s.keyFile(), data, 0o600)
}

// dropKey forgets the key of a request that came to its end.
func (s *store) dropKey() error {
	return file.Remove(s.keyFile())
}
