package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/house"
)

// Prepare lays out folders, identities, bus keys and the certificate folder, as root.
// Idempotent.
func (p *Plan) Prepare() error {
	ids := p.Identities()
	for _, dir := range []string{p.Run, p.State, p.LogDir, p.RootDir, filepath.Dir(p.PodLogsDir)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	worker := ids[house.PodWorker]
	owned := []ownedFolder{
		{filepath.Join(p.RootDir, "pods"), 0o751, worker},
		{filepath.Join(p.RootDir, "image_manager"), 0o755, worker},
		{filepath.Join(p.RootDir, "checkpoints"), 0o700, worker},
		{p.PodLogsDir, 0o755, worker},
		{p.LinksDir, 0o755, worker},
	}
	for s, uid := range ids {
		owned = append(owned,
			ownedFolder{filepath.Join(p.Run, string(s)), 0o755, uid},
			ownedFolder{p.Paths().StateOf(s), 0o700, uid})
	}
	for _, dir := range owned {
		if err := dir.ensure(); err != nil {
			return err
		}
	}
	data, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	if err := writeFile(p.Paths().Identities(), append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := p.keys(ids); err != nil {
		return err
	}
	if err := p.preparePKI(ids); err != nil {
		return err
	}
	if err := traversable(p.RootDir, filepath.Dir(p.CertDir)); err != nil {
		return err
	}
	return p.Write()
}

type ownedFolder struct {
	path string
	mode fs.FileMode
	uid  uint32
}

func (o ownedFolder) ensure() error {
	if err := os.MkdirAll(o.path, o.mode); err != nil {
		return err
	}
	return errors.Join(os.Chmod(o.path, o.mode), os.Chown(o.path, int(o.uid), int(o.uid)))
}

// keys are kept with the state, so that a reboot keeps them, and linked into the
// run directory where the services look.
func (p *Plan) keys(ids house.Identities) error {
	dir := filepath.Join(p.State, "bus-keys")
	if err := bus.EnsureKeys(dir, ids); err != nil {
		return err
	}
	link := p.Paths().BusKeys()
	if at, err := os.Readlink(link); err == nil && at == dir {
		return nil
	}
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(dir, link)
}
