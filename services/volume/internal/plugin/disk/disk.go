// SPDX-License-Identifier: Apache-2.0

// Package disk makes volumes that are iSCSI or FC disks: root's tools have the disk on
// the node, mounted once, and pods get that mount bound, or the device.
package disk

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
	"github.com/sextant-node/sextant/services/volume/internal/netdisk"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/local"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
)

// Host has the folders they are bound to.
type Host interface {
	local.Host
	Point(uid types.UID, plugin, volume, name string) (path string, there bool, err error)
}

// Plugin is a plugin.Plugin.
type Plugin struct {
	// Type is volumetype.ISCSI or volumetype.FC.
	Type  string
	Host  Host
	Local local.Plugin
	// Disks are those of all types.
	Disks *netdisk.Manager
}

// Standing implements plugin.Plugin.
func (d Plugin) Standing(p *v1.Pod, v *v1.Volume) (plugin.Made, bool) {
	path, ok := d.Host.Mounted(p.UID, d.Type, v.Name, v.ISCSI != nil || v.FC != nil)
	if !ok {
		path, ok = d.Disks.Device(p.UID, v.Name)
	}
	return plugin.Made{Path: path}, ok
}

// Make implements plugin.Plugin. What stands is left alone, as with NFS.
func (d Plugin) Make(ctx context.Context, r *plugin.Request) (m plugin.Made, err error) {
	a, err := asked(r)
	if err != nil {
		return m, err
	}
	label := ""
	if r.Source != nil && r.Source.Exclusive() && !a.Block { // of a shared volume the first pod would decide
		if label, err = demand.Label(r.Pod, r.Volume, true, r.Objects); err != nil {
			return m, err
		}
	}
	if label != "" {
		a.Options = append(a.Options, csi.LabelOption(label))
	}
	m.Relabel = !a.ReadOnly && label == ""
	m.Path, err = d.disk(ctx, r, a)
	return m, err
}

// asked is what the volume asks for. Whether a persistent volume is read-only is said by
// the claim's user.
func asked(r *plugin.Request) (a *netdisk.Asked, err error) {
	v, src := r.Volume, r.Source
	switch {
	case src == nil && v.ISCSI != nil:
		return netdisk.Inline(v.ISCSI, v.Name, r.Pod.Namespace), nil
	case src == nil:
		return netdisk.FromFC(v.FC)
	case src.Volume.Spec.ISCSI != nil:
		a = netdisk.FromISCSI(src.Volume.Spec.ISCSI, src.Volume.Name, r.Pod.Namespace)
	default:
		if a, err = netdisk.FromFC(src.Volume.Spec.FC); err != nil {
			return nil, err
		}
	}
	a.Block, a.ReadOnly, a.Options = src.Block, src.ReadOnly, plugin.MountOptions(src.Volume)
	return a, nil
}

func (d Plugin) disk(ctx context.Context, r *plugin.Request, a *netdisk.Asked) (string, error) {
	r.Report.Attaches(ctx, a.AttachName())
	if a.Block {
		if device, ok := d.Disks.Device(r.Pod.UID, r.Volume.Name); ok {
			return device, nil
		}
	} else if path, there, err := d.Host.Point(r.Pod.UID, d.Type, r.Volume.Name, r.Name()); err != nil {
		return "", err
	} else if there {
		return path, d.Disks.Note(r.Pod.UID, r.Volume.Name, a)
	}
	if err := listed(r.Objects, a.AttachName()); err != nil {
		return "", err
	}
	discovery, session, err := chap(r.Objects, a)
	if err != nil {
		return "", err
	}
	if err := fault.Hit(ctx, "volume.disk"); err != nil {
		return "", err
	}
	wanted, cancel := r.WhileWanted(ctx)
	defer cancel()
	at, err := d.Disks.Stage(wanted, r.Pod.UID, r.Volume.Name, a, discovery, session)
	if err != nil || a.Block {
		return at, err
	}
	return d.Local.Bind(ctx, r, setup.Local{Plugin: d.Type, Path: at, ReadOnly: a.ReadOnly})
}

// listed waits until the attach controller has given a disk to this node: that keeps two
// nodes from a disk that one may write to. Without an API server there is no controller.
func listed(o plugin.Objects, name string) error {
	alone, err := o.Standalone()
	if err != nil || alone {
		return err
	}
	return demand.Listed(name, o)
}

// chap are a disk's credentials.
func chap(o plugin.Objects, a *netdisk.Asked) (discovery, session *supervisorv1.CHAP, err error) {
	if !a.Discovery && !a.Session {
		return nil, nil, nil
	}
	if a.Secret == nil {
		return nil, nil, rpc.Invalid.Errorf("CHAP enabled but secret name is empty")
	}
	secret, err := o.Secret(a.Secret.Namespace, a.Secret.Name)
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

// Release implements plugin.Releaser.
func (d Plugin) Release(_ context.Context, uid types.UID) error { return d.Disks.Release(uid) }

// Left implements plugin.Reaper.
func (d Plugin) Left() []string { return d.Disks.Left() }

// Reap implements plugin.Reaper.
func (d Plugin) Reap(ctx context.Context, name string) error { return d.Disks.Reap(ctx, name) }

// InUse implements plugin.Attacher.
func (d Plugin) InUse() []string { return d.Disks.InUse() }
