package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
)

// Prepare lays out folders, identities, bus keys and the certificate folder, as root.
// Without systemd, which shares the node's mounts, it sees to the root directory's
// mount as well. Idempotent.
func (p *Plan) Prepare() error {
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
			ownedFolder{p.Paths().StateOf(s), 0o700, p.account(s), true}) // root's are from a backup
	}
	for _, dir := range owned {
		if err := dir.ensure(); err != nil {
			return err
		}
	}
	if err := p.tell(); err != nil {
		return err
	}
	if err := p.link(); err != nil {
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

// telling lets one service at a time be told.
var telling sync.Mutex

// tell writes down who is who, and the bus's keys, where that is not so already.
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
	return errors.Join(err, bus.EnsureKeys(p.keyDir(), p.keyOwners()))
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
	// roots: what root made in it is handed over as well, be it that a kubelet has
	// the folder too, or that an operator put files there.
	roots bool
}

func (o ownedFolder) ensure() error {
	if info, err := os.Stat(o.path); err == nil && !info.IsDir() {
		if _, err := file.Aside(o.path, time.Now()); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.path, o.mode); err != nil {
		return err
	}
	if err := o.adopt(); err != nil {
		return err
	}
	return give(o.path, o.own, o.mode)
}

// give sets owner and rights of a folder where they are not so already: it may be on
// a disk that takes no writes.
func give(path string, own Account, mode fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	const bits = fs.ModePerm | fs.ModeSetgid | fs.ModeSetuid | fs.ModeSticky
	if is := info.Sys().(*syscall.Stat_t); info.Mode()&bits == mode && is.Uid == own.UID && is.Gid == own.GID {
		return nil
	}
	return errors.Join(os.Chown(path, int(own.UID), int(own.GID)), os.Chmod(path, mode))
}

// adopt hands over what is in a folder that belonged to another uid of the same
// service, because the node was run by the supervisor before, or is again, and what
// is root's where that is to be: podworker has to write beside what a kubelet made,
// and read it, and root may do so all the same when the kubelet comes back. Volumes
// hold what is the pods'. Links are not followed.
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
		if theirs := uid == before && before != 0 || uid == 0 && o.roots; uid == o.own.UID || !theirs {
			return nil
		}
		return os.Lchown(path, int(o.own.UID), int(o.own.GID))
	})
}

// keyDir is where the bus's keys are: with the state, so that a reboot keeps them.
func (p *Plan) keyDir() string { return filepath.Join(p.State, "bus-keys") }

// link links the keys into the run directory, where the services look.
func (p *Plan) link() error {
	dir := p.keyDir()
	link := p.Paths().BusKeys()
	if at, err := os.Readlink(link); err == nil && at == dir {
		return nil
	}
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(dir, link)
}
