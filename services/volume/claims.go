package volume

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
)

// claimed makes sure of the volume that a claim leads to, by its plugin.
func (s *Service) claimed(l lookups, w *podWork, p *v1.Pod, v *v1.Volume) (m made, err error) {
	src, err := claim.Resolve(p, v, l)
	if err != nil {
		return m, err
	}
	of := &src.Volume.Spec.PersistentVolumeSource
	if of.CSI != nil {
		return s.driven(l, w, p, v, src)
	}
	// A volume without a claim between it and the pod has the same source.
	direct := &v1.Volume{Name: v.Name, VolumeSource: v1.VolumeSource{HostPath: of.HostPath}}
	if plugin := content.Plugin(direct); plugin == content.HostPath && !src.Block {
		m.path, err = s.host.HostPath(direct)
		return m, err
	}
	if of.NFS != nil && !src.Block {
		m.path, err = s.nfs(l.ctx, w, p, v, nfsVolume{Name: src.Volume.Name, Source: of.NFS, ReadOnly: src.ReadOnly, Options: mountOptions(src.Volume)})
		return m, err
	}
	if of.Local != nil && !src.Block {
		m.relabel = !src.ReadOnly
		m.path, err = s.host.Local(p.UID, local(p, v, src))
		return m, err
	}
	if of.ISCSI != nil || of.FC != nil {
		plugin := content.ISCSI
		if of.FC != nil {
			plugin = content.FC
		}
		asked, err := claimedDisk(p, src)
		if err != nil {
			return m, err
		}
		label := ""
		if src.Exclusive() && !src.Block { // of others, whoever comes first would decide
			if label, err = demand.Label(p, v, true, l); err != nil {
				return m, err
			}
		}
		if label != "" {
			asked.Options = append(asked.Options, csi.LabelOption(label))
		}
		m.relabel = !asked.ReadOnly && label == ""
		m.path, err = s.disk(l, w, p, v, plugin, src.Volume.Name, asked)
		return m, err
	}
	return m, fmt.Errorf("the plugin of PV %s is not supported by this node agent", src.Volume.Name)
}

// local is the folder of this node that a persistent volume is.
func local(p *v1.Pod, v *v1.Volume, src *claim.Source) setup.Local {
	spec := &src.Volume.Spec
	l := setup.Local{Plugin: content.Local, Volume: v.Name, Name: src.Volume.Name, Path: spec.Local.Path, Options: spec.MountOptions, ReadOnly: src.ReadOnly}
	l.Group, l.OnMismatch = groupOf(p)
	return l
}

// groupOf is the group that a pod's volumes are given to, nil for none, and whether only
// those that are not its already.
func groupOf(p *v1.Pod) (group *int64, onMismatch bool) {
	if c := p.Spec.SecurityContext; c != nil {
		return c.FSGroup, c.FSGroupChangePolicy != nil && *c.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	}
	return nil, false
}
