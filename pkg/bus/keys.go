// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nats-io/nkeys"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
)

// KeyFile is the seed of one service's NKey below a key folder, mode 0600.
func KeyFile(dir string, s house.Service) string { return filepath.Join(dir, string(s)+".nk") }

// publicFile lists the public keys, for the bus.
func publicFile(dir string) string { return filepath.Join(dir, "public.json") }

// EnsureKeys makes an NKey for every service that has none and writes the list
// of public keys. Run by root it gives each seed to its service's uid. A
// damaged seed is replaced. Idempotent.
func EnsureKeys(dir string, ids house.Identities) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("bus keys: %w", err)
	}
	public := map[house.Service]string{}
	for _, s := range append(house.Services(), house.Operator) {
		if s == house.Bus {
			continue
		}
		key, err := ensureKey(KeyFile(dir, s), ids[s])
		if err != nil {
			return fmt.Errorf("bus key of %s: %w", s, err)
		}
		public[s] = key
	}
	data, err := json.MarshalIndent(public, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if have, err := os.ReadFile(publicFile(dir)); err == nil && bytes.Equal(have, data) {
		return nil
	}
	return file.Replace(publicFile(dir), data, 0o644)
}

func ensureKey(path string, uid uint32) (public string, err error) {
	seed, err := os.ReadFile(path)
	pair, bad := nkeys.FromSeed(seed)
	if err != nil || bad != nil { // missing, damaged, or no file at all
		if pair, err = nkeys.CreateUser(); err != nil {
			return "", err
		}
		if seed, err = pair.Seed(); err != nil {
			return "", err
		}
		if err := file.Replace(path, seed, 0o600); err != nil {
			return "", err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if os.Geteuid() == 0 && info.Sys().(*syscall.Stat_t).Uid != uid {
		if err := os.Chown(path, int(uid), -1); err != nil {
			return "", err
		}
	}
	return pair.PublicKey()
}

func readPublic(dir string) (map[house.Service]string, error) {
	data, err := os.ReadFile(publicFile(dir))
	if err != nil {
		return nil, err
	}
	public := map[house.Service]string{}
	if err := json.Unmarshal(data, &public); err != nil {
		return nil, fmt.Errorf("%s: %w", publicFile(dir), err)
	}
	return public, nil
}

func sign(path string, nonce []byte) ([]byte, error) {
	pair, err := readPair(path)
	if err != nil {
		return nil, err
	}
	defer pair.Wipe()
	return pair.Sign(nonce)
}

func publicKey(path string) (string, error) {
	pair, err := readPair(path)
	if err != nil {
		return "", err
	}
	defer pair.Wipe()
	return pair.PublicKey()
}

func readPair(path string) (nkeys.KeyPair, error) {
	seed, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return nkeys.FromSeed(seed)
}
