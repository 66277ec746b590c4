package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/house"
)

// Prepare lays out folders, identities, bus keys and the certificate folder, as root.
// Without systemd, which shares the node's mounts, it sees to the root directory's
// mount as well. Idempotent.
func (p *Plan) Prepare() error {
	ids := p.Identities()
	folders := []string{p.Run, p.State, p.RootDir, filepath.Dir(p.PodLogsDir)}
	if p.LogDir != "" {
		folders = append(folders, p.LogDir)
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
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
			ownedFolder{p.Paths().StateOf(s), 0o700, p.account(s), false})
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
	if err := p.keys(p.keyOwners()); err != nil {
		return err
	}
	if err := p.preparePKI(); err != nil {
		return err
	}
	if err := traversable(p.RootDir, filepath.Dir(p.CertDir), filepath.Dir(p.PodLogsDir)); err != nil {
		return err
	}
	if !p.Units {
		if err := p.share(); err != nil {
			return err
		}
	}
	return p.Write()
}

// Credential tells whether systemd hands a service its NKey, which is root's
// then. volume shares the node's mount namespace, where a credential's folder
// would be one more mount; the bus has no key.
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

type ownedFolder struct {
	path string
	mode fs.FileMode
	own  Account
	// kubelets tells that a kubelet has the folder too, and makes things in it as
	// root.
	kubelets bool
}

func (o ownedFolder) ensure() error {
	if err := os.MkdirAll(o.path, o.mode); err != nil {
		return err
	}
	if err := o.adopt(); err != nil {
		return err
	}
	return errors.Join(os.Chmod(o.path, o.mode), os.Chown(o.path, int(o.own.UID), int(o.own.GID)))
}

// adopt hands over what is in a folder that belonged to another uid of the same
// service, because the node was run by the supervisor before, or is again, and what
// is root's in a folder of the kubelet's, because that made it: podworker has to write beside it, and read
// it, and root may do so all the same when the kubelet comes back. Volumes hold what
// is the pods'. Links are not followed.
func (o ownedFolder) adopt() error {
	info, err := os.Lstat(o.path)
	if err != nil {
		return err
	}
	before := info.Sys().(*syscall.Stat_t).Uid
	return filepath.WalkDir(o.path, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // pods go on meanwhile
		}
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "volumes" || d.Name() == "volume-subpaths" || d.Name() == "volumeDevices" || d.Name() == "plugins") {
			return fs.SkipDir
		}
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		uid := info.Sys().(*syscall.Stat_t).Uid
		if theirs := uid == before && before != 0 || uid == 0 && o.kubelets; uid == o.own.UID || !theirs {
			return nil
		}
		return os.Lchown(path, int(o.own.UID), int(o.own.GID))
	})
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
