package volume

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
	"github.com/sextant-node/sextant/services/volume/internal/netdisk"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
)

// diskLimit is how long it may take to have a disk on this node: logins, the wait for its
// device, a new file system.
const diskLimit = 5 * time.Minute

// inlineDisk is what a disk in a pod's own volume is.
func inlineDisk(p *v1.Pod, v *v1.Volume) (*netdisk.Asked, error) {
	if v.ISCSI != nil {
		return netdisk.Inline(v.ISCSI, v.Name, p.Namespace), nil
	}
	return netdisk.FromFC(v.FC)
}

// claimedDisk is what the disk of a persistent volume is. Whether it is read only is
// said by the claim's user.
func claimedDisk(p *v1.Pod, src *claim.Source) (a *netdisk.Asked, err error) {
	spec := &src.Volume.Spec
	if spec.ISCSI != nil {
		a = netdisk.FromISCSI(spec.ISCSI, src.Volume.Name, p.Namespace)
	} else if a, err = netdisk.FromFC(spec.FC); err != nil {
		return nil, err
	}
	a.Block, a.ReadOnly, a.Options = src.Block, src.ReadOnly, mountOptions(src.Volume)
	return a, nil
}

// disk makes sure of a volume that is an iSCSI or FC disk. name is the persistent
// volume's, or that in the pod. What stands is left alone, as with NFS.
func (s *Service) disk(l lookups, w *podWork, p *v1.Pod, v *v1.Volume, plugin, name string, a *netdisk.Asked) (string, error) {
	s.attaches(l.ctx, w, v.Name, a.AttachName())
	if a.Block {
		if device, ok := s.disks.Device(p.UID, v.Name); ok {
			return device, nil
		}
	} else if path, there, err := s.host.Point(p.UID, plugin, v.Name, name); err != nil {
		return "", err
	} else if there {
		return path, s.disks.Note(p.UID, v.Name, a)
	}
	if err := s.listed(l, a.AttachName()); err != nil {
		return "", err
	}
	discovery, session, err := chap(l, a)
	if err != nil {
		return "", err
	}
	if err := fault.Hit(l.ctx, "volume.disk"); err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	defer context.AfterFunc(w.leaving, cancel)()
	at, err := s.disks.Stage(ctx, p.UID, v.Name, a, discovery, session)
	if err != nil || a.Block {
		return at, toolError(err)
	}
	bind := setup.Local{Plugin: plugin, Volume: v.Name, Name: name, Path: at, ReadOnly: a.ReadOnly}
	bind.Group, bind.OnMismatch = groupOf(p)
	return s.host.Local(p.UID, bind)
}

// attaches notes the attach controller's name of a volume, so that the node says that it
// is in use.
func (s *Service) attaches(ctx context.Context, w *podWork, volume, name string) {
	s.mu.Lock()
	had := w.attach[volume]
	if w.attach == nil {
		w.attach = map[string]string{}
	}
	w.attach[volume] = name
	s.mu.Unlock()
	if had != name {
		s.publishNode(ctx)
	}
}

// listed waits until the attach controller has given a disk to this node: that is what
// keeps two nodes from one that is to be written by one. Without an API server nobody does.
func (s *Service) listed(l lookups, name string) error {
	conf, ok := s.kubelet.Get("kubelet")
	if !ok {
		return content.ErrWait
	}
	if conf.Standalone() {
		return nil
	}
	return demand.Listed(name, l)
}

// chap are a disk's credentials.
func chap(l lookups, a *netdisk.Asked) (discovery, session *supervisorv1.CHAP, err error) {
	if !a.Discovery && !a.Session {
		return nil, nil, nil
	}
	if a.Secret == nil {
		return nil, nil, rpc.Invalid.Errorf("CHAP enabled but secret name is empty")
	}
	secret, err := l.Secret(a.Secret.Namespace, a.Secret.Name)
	if err != nil {
		return nil, nil, fmt.Errorf("fetching secret %s/%s failed: %w", a.Secret.Namespace, a.Secret.Name, err)
	}
	if a.Discovery {
		discovery = netdisk.CHAP(secret, "discovery.sendtargets.auth")
	}
	if a.Session {
		session = netdisk.CHAP(secret, "node.session.auth")
	}
	return discovery, session, nil
}

// releaseDisks lets go of a pod's disks, once it has nothing mounted any more.
func (s *Service) releaseDisks(ctx context.Context, uid types.UID) error {
	if !s.disks.Uses(uid) {
		return nil
	}
	err := s.disks.Release(ctx, uid)
	s.publishNode(ctx)
	return toolError(err)
}
