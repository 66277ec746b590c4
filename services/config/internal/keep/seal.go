// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/store"
)

// Mode is how long what is kept can be read.
type Mode string

// Modes.
const (
	// Disk: also after the machine was started again.
	Disk Mode = "disk"
	// Boot: until the machine is switched off; the key is in the run folder, which is
	// memory.
	Boot Mode = "boot"
	// Off: Secrets and tokens are not kept at all, everything else as with Disk.
	Off Mode = "off"
)

// Credential is the name of the systemd credential that holds the key instead of a file
// (systemd.exec(5), ImportCredential=).
const Credential = "sextant.config-key"

const (
	// KeyFile is the name of a key's file within the state folder or the run folder.
	KeyFile = "keep.key"
	keySize = 32
	// least is the shortest credential that makes a key, in bytes.
	least = 16
	// sealed is what every record begins with: no protobuf message and no JSON does.
	sealed = "\x00\x01"
)

// Keys is where the key may be.
type Keys struct {
	// Mode is Disk when empty.
	Mode Mode
	// State and Run are the folders of the service, Credentials systemd's; empty for
	// none.
	State, Run, Credentials string
}

var errSealed = errors.New("sealed with another key")

// sealer encrypts records (AES-256-GCM) with the first key, and decrypts with any.
type sealer struct {
	keys []cipher.AEAD
	// save writes the first key to its file. Until it did nothing may be sealed: the next
	// life could not read it. It is nil when that, and what comes of it, is done.
	save func() error
	// former are files of other keys, which are of no use any more once every record is
	// sealed with the first one.
	former []string
}

// sealer finds the key, or makes one. The error says what is wrong with a key that
// should have been used; the sealer is ready for use all the same. A key file that
// cannot be read, or is no key, is set aside when another one takes its place.
func (k Keys) sealer() (s sealer, err error) {
	own, other := filepath.Join(k.State, KeyFile), filepath.Join(k.Run, KeyFile)
	if k.Mode == Boot {
		own, other = other, own
	}
	var secrets [][]byte
	s.save = func() error { return nil }
	if k.Credentials != "" && k.Mode != Boot {
		secret, readErr := os.ReadFile(filepath.Join(k.Credentials, Credential))
		switch {
		case readErr == nil && len(secret) >= least:
			secrets = append(secrets, secret)
		case readErr == nil:
			err = fmt.Errorf("credential %s has %d bytes, at least %d are needed", Credential, len(secret), least)
		case !errors.Is(readErr, fs.ErrNotExist):
			err = fmt.Errorf("credential %s: %w", Credential, readErr)
		}
	}
	for _, name := range []string{own, other} {
		secret, readErr := readKey(name)
		switch {
		case readErr == nil:
			if len(secrets) > 0 {
				s.former = append(s.former, name)
			}
			secrets = append(secrets, secret)
		case name == own && len(secrets) == 0: // none yet, or one that is of no use
			fresh := make([]byte, keySize)
			rand.Read(fresh) // it never fails
			secrets = append(secrets, fresh)
			none := errors.Is(readErr, fs.ErrNotExist)
			if !none {
				err = errors.Join(err, readErr)
			}
			s.save = func() error { return writeKey(name, fresh, !none) }
		}
	}
	for _, secret := range secrets {
		s.keys = append(s.keys, newAEAD(secret))
	}
	return s, err
}

func readKey(name string) ([]byte, error) {
	secret, err := os.ReadFile(name)
	if err == nil && len(secret) != keySize {
		err = fmt.Errorf("key %s has %d bytes, want %d", name, len(secret), keySize)
	}
	return secret, err
}

// writeKey makes a key's file; what has its name is set aside first.
func writeKey(name string, secret []byte, aside bool) error {
	err := os.MkdirAll(filepath.Dir(name), 0o755) // both folders are there on a node
	if err == nil && aside {
		_, err = file.KeepAside(name, time.Now())
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = file.Replace(name, secret, 0o600)
	}
	if err != nil {
		return fmt.Errorf("key of what is kept: %w", err)
	}
	return nil
}

// newAEAD fails for no secret: the sizes are right.
func newAEAD(secret []byte) cipher.AEAD {
	key, err := hkdf.Key(sha256.New, secret, nil, "sextant: what config keeps", keySize)
	if err != nil {
		panic(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// seal encrypts a record of a table.
func (s sealer) seal(table string, data []byte) []byte {
	return s.keys[0].Seal([]byte(sealed), nil, data, []byte(table))
}

// open decrypts a record; current says that it needs no other seal. A version that
// knew no seals wrote records as they are.
func (s sealer) open(table string, data []byte) (plain []byte, current bool, err error) {
	if len(data) < len(sealed) || string(data[:len(sealed)]) != sealed {
		return data, false, nil
	}
	for i, key := range s.keys {
		if plain, err = key.Open(nil, nil, data[len(sealed):], []byte(table)); err == nil {
			return plain, i == 0, nil
		}
	}
	return nil, false, errSealed
}

// codec seals what another one makes.
func codec[T any](s sealer, table string, inner store.Codec[T]) store.Codec[T] {
	return store.Codec[T]{
		Marshal: func(v T) ([]byte, error) {
			data, err := inner.Marshal(v)
			if err != nil {
				return nil, err
			}
			return s.seal(table, data), nil
		},
		Unmarshal: func(data []byte) (v T, err error) {
			plain, _, err := s.open(table, data)
			if err != nil {
				return v, err
			}
			return inner.Unmarshal(plain)
		},
	}
}

// raw is the codec of records as they are in the file.
func raw() store.Codec[[]byte] {
	return store.Codec[[]byte]{
		Marshal:   func(data []byte) ([]byte, error) { return data, nil },
		Unmarshal: func(data []byte) ([]byte, error) { return data, nil },
	}
}
