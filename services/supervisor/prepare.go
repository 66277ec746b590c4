// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
)

// Prepare creates folders, identities, bus keys and the certificate folder, as root.
// Without systemd, which makes mounts shared, it also shares the root directory's
// mount. Idempotent.
func (p *Plan) Prepare() error {
	// Services pass through root's folders, whatever the umask; files say their own modes.
	defer syscall.Umask(syscall.Umask(0o022))
	folders := []string{p.Run, p.State, p.RootDir, filepath.Dir(p.PodLogsDir), filepath.Dir(p.Paths().Supervisor()), filepath.Dir(p.Paths().Tools())}
	if p.LogDir != "" {
		folders = append(folders, p.LogDir)
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// Of root and closed, as a kubelet makes them: plugins have their sockets there.
	for _, dir := range []string{filepath.Join(p.RootDir, "device-plugins"), filepath.Join(p.RootDir, "pod-resources"), filepath.Join(p.RootDir, "plugins_registry")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	worker := p.account(house.PodWorker)
	owned := []ownedFolder{
		{filepath.Join(p.RootDir, "pods"), 0o751, worker, true},
		{filepath.Join(p.RootDir, "image_manager"), 0o755, worker, true},
		{filepath.Join(p.RootDir, "checkpoints"), 0o700, worker, true},
		{p.PodLogsDir, 0o755, worker, true},
		{p.LinksDir, 0o755, worker, true},
	}
	for _, s := range house.Services() {
		owned = append(owned,
			ownedFolder{filepath.Join(p.Run, string(s)), 0o755, p.account(s), false},
			ownedFolder{p.Paths().StateOf(s), 0o700, p.account(s), true}) // files of root come from a backup
	}
	for _, dir := range owned {
		if err := dir.ensure(); err != nil {
			return err
		}
	}
	if err := p.tell(); err != nil {
		return err
	}
	if err := link(p.Paths()); err != nil {
		return err
	}
	if err := (certFolder{dir: p.CertDir, config: p.account(house.Config), nodeapi: p.account(house.NodeAPI)}).ensure(); err != nil {
		return err
	}
	if err := traversable(p.RootDir, filepath.Dir(p.CertDir), p.CertDir, filepath.Dir(p.PodLogsDir)); err != nil {
		return err
	}
	if !p.Units {
		if err := share(p.RootDir, p.Run); err != nil {
			return err
		}
	}
	return p.Write()
}

// telling serializes writes of identities.json and the bus keys.
var telling sync.Mutex

// tell writes identities.json and the bus keys, unless they are up to date.
func (p *Plan) tell() error {
	telling.Lock()
	defer telling.Unlock()
	data, err := json.Marshal(p.Identities())
	if err != nil {
		return err
	}
	data = append(data, '\n')
	path := p.Paths().Identities()
	if have, readErr := os.ReadFile(path); readErr != nil || !bytes.Equal(have, data) {
		err = file.Replace(path, data, 0o644)
	}
	return errors.Join(err, bus.EnsureKeys(keyDir(p.State), p.keyOwners()))
}

// Credential reports whether systemd passes a service its NKey as a credential; the
// file then belongs to root. Not volume: it shares the node's mount namespace, where
// the credential's folder would be one more mount. Not bus: it has no key.
func Credential(s house.Service) bool { return s != house.Volume && s != house.Bus }

// keyOwners are the uids that may read the NKeys.
func (p *Plan) keyOwners() house.Identities {
	owners := p.Identities()
	for s := range owners {
		if p.Units && Credential(s) {
			owners[s] = 0
		}
	}
	return owners
}

// keyDir is the folder of the bus keys, below the state directory, so that they outlive
// a reboot.
func keyDir(state string) string { return filepath.Join(state, "bus-keys") }

// link links the keys into the run directory, where the services read them.
func link(at house.Paths) error {
	dir, link := keyDir(at.State), at.BusKeys()
	if at, err := os.Readlink(link); err == nil && at == dir {
		return nil
	}
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(dir, link)
}
