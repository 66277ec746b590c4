package identity

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/keyutil"
)

// pairPrefix is the kubelet's name of the client certificate's files.
const pairPrefix = "kubelet-client"

// userPrefix before the node's name makes the user's name (node authorizer).
const userPrefix = "system:node:"

// store is the certificate folder, in the kubelet's layout.
type store struct{ dir string }

func newStore(dir string) *store { return &store{dir} }

// current is the certificate with its key, as PEM, if there is one of this
// node. Another node's, or one that cannot be read, is none; that is an error
// where it stands in the way.
func (s *store) current(node string) (pair []byte, leaf *x509.Certificate, err error) {
	files, err := s.files()
	if err != nil {
		return nil, nil, err
	}
	cert, err := files.Current()
	var none *certificate.NoCertKeyError
	switch {
	case errors.As(err, &none):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	if have := cert.Leaf.Subject.CommonName; have != userPrefix+node {
		return nil, nil, fmt.Errorf("%s is of %q, not of this node", files.CurrentPath(), have)
	}
	pair, err = s.read(files.CurrentPath())
	return pair, cert.Leaf, err
}

// read reads the pair, which is one file, or two of an older kubelet.
func (s *store) read(current string) ([]byte, error) {
	pair, err := os.ReadFile(current)
	if !errors.Is(err, fs.ErrNotExist) {
		return pair, err
	}
	for _, name := range []string{pairPrefix + ".crt", pairPrefix + ".key"} {
		part, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return nil, err
		}
		pair = append(pair, part...)
	}
	return pair, nil
}

// update makes a certificate the current one.
func (s *store) update(cert, key []byte) (*x509.Certificate, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	pair, err := files.Update(cert, key)
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

func (s *store) files() (certificate.FileStore, error) {
	return certificate.NewFileStoreWithLogger(logr.Discard(), pairPrefix, s.dir, s.dir, "", "")
}

// pendingKey is the key of the request under way; a new one if there is none
// that can be used.
func (s *store) pendingKey() (key *ecdsa.PrivateKey, data []byte, err error) {
	path := filepath.Join(s.dir, pairPrefix+".key.tmp")
	for range 2 {
		data, _, err = keyutil.LoadOrGenerateKeyFile(path)
		if err == nil {
			parsed, parseErr := keyutil.ParsePrivateKeyPEM(data)
			if key, ok := parsed.(*ecdsa.PrivateKey); ok && parseErr == nil {
				return key, data, nil
			}
			err = errors.Join(parseErr, fmt.Errorf("%s: not an ECDSA key", path))
		}
		if removeErr := s.dropKey(); removeErr != nil {
			return nil, nil, errors.Join(err, removeErr)
		}
	}
	return nil, nil, err
}

// dropKey forgets the key of a request that came to its end.
func (s *store) dropKey() error {
	err := os.Remove(filepath.Join(s.dir, pairPrefix+".key.tmp"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
