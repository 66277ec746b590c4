package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
	"github.com/sextant-node/sextant/services/volume/internal/plugins"
)

// nodeKey is the key of the one item of volume.node.
const nodeKey = "node"

// newCSI wires drivers in.
func (s *Service) newCSI(root, boot string) error {
	var err error
	s.volumes = service.Owner[*volumev1.VolumeNode](s.kit, house.VolumeNode)
	if s.drivers, err = csi.NewDrivers(s.file, s.metrics.called, s.driverChanged, s.kit.Log); err != nil {
		return fmt.Errorf("CSI drivers: %w", err)
	}
	layout := pod.Layout{Root: root}
	s.csi, err = csi.New(csi.Config{
		Layout: layout, Drivers: s.drivers, Store: s.file, Boot: boot, Log: s.kit.Log,
		Give: func(path string, r *csi.Request) error {
			return s.host.Give(path, int(*r.FSGroup), r.GroupOnMismatch)
		},
	})
	if err != nil {
		return fmt.Errorf("CSI volumes: %w", err)
	}
	registry := plugins.New(plugins.Config{
		Dir: layout.PluginsRegistry(), Type: registration.CSIPlugin, Log: s.kit.Log,
		Register: s.drivers.Register, Unregister: s.drivers.Unregister,
		Scanned: func(found []string) {
			s.drivers.Scanned(found)
			s.publishNode(context.Background())
			s.volumes.SetComplete(context.Background(), true)
		},
	})
	s.kit.Go("plugins", func(ctx context.Context) error {
		s.publishNode(ctx)
		for _, d := range s.drivers.List() {
			s.reap(d.Name)
		}
		if err := registry.Run(ctx); err != nil {
			s.kit.Log.Error("no CSI driver can register", "error", err.Error())
		}
		<-ctx.Done()
		return nil
	})
	return nil
}

// driverChanged hears that a driver came or went: volumes may wait for it.
func (s *Service) driverChanged(name string) {
	s.again(func(w *podWork) bool {
		return slices.ContainsFunc(w.pod.Spec.Volumes, func(v v1.Volume) bool { return v.CSI != nil || claim.Name(w.pod, &v) != "" })
	})
	s.publishNode(context.Background())
	s.reap(name)
}

// reap has a driver unstage what no pod uses, unless the service ends.
func (s *Service) reap(driver string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	s.passes.Go(func() {
		if err := s.csi.Reap(context.Background(), driver); err != nil {
			s.kit.Log.Warn("volumes that no pod uses are staged still", "driver", driver, "error", err.Error())
		}
	})
}

// publishNode writes the item of volume.node.
func (s *Service) publishNode(ctx context.Context) {
	s.nodeTurn.Lock()
	defer s.nodeTurn.Unlock()
	item := &volumev1.VolumeNode{}
	for _, d := range s.drivers.List() {
		item.Drivers = append(item.Drivers, &volumev1.CSIDriver{Name: d.Name, NodeId: d.NodeID, Topology: d.Topology, MaxVolumes: d.MaxVolumes})
	}
	set := map[string]bool{}
	for _, name := range s.csi.InUse() {
		set[name] = true
	}
	s.mu.Lock()
	for _, w := range s.pods {
		for _, name := range w.attach {
			if !w.withdrawing {
				set[name] = true
			}
		}
	}
	for _, name := range s.disks.InUse() {
		set[name] = true
	}
	item.Expansions = s.expansions()
	s.mu.Unlock()
	item.InUse = slices.Sorted(maps.Keys(set))
	if _, err := s.volumes.Set(ctx, nodeKey, item); err != nil {
		s.kit.Log.Error("publish", "feed", house.VolumeNode, "error", err.Error())
	}
}

// driven makes sure of a volume that a CSI driver serves: src is what its claim
// leads to, nil for an inline one.
func (s *Service) driven(l lookups, w *podWork, p *v1.Pod, v *v1.Volume, src *claim.Source) (m made, err error) {
	standing, published := s.csi.Standing(p.UID, v.Name)
	var asked *demand.Asked
	if src == nil {
		asked, err = demand.Inline(p, v, published, l)
	} else {
		asked, err = s.persistent(l, w, p, v, src, published)
	}
	if err != nil {
		return made{path: standing}, err
	}
	before := src != nil && asked.Size > 0 && s.csi.Expanded(&asked.Request)
	m.relabel = !asked.ReadOnly && asked.Label == ""
	m.path, err = s.csi.Mount(l.ctx, &asked.Request)
	if src != nil {
		after := asked.Size > 0 && s.csi.Expanded(&asked.Request)
		if after && !before && asked.Had < asked.Size {
			s.sayExpanded(l.ctx, p, src, l.NodeName())
		}
		s.tellClaim(l.ctx, w, v.Name, expansion(src, asked, after, err))
	}
	if asked.Attachable {
		s.publishNode(l.ctx)
	}
	if err == nil && asked.Again > 0 {
		m.refresh = s.now().Add(asked.Again)
	}
	return m, err
}

// persistent waits until a volume is attached, and says what to ask of its driver.
func (s *Service) persistent(l lookups, w *podWork, p *v1.Pod, v *v1.Volume, src *claim.Source, published bool) (*demand.Asked, error) {
	name, err := demand.Attach(src, l)
	if err != nil {
		return nil, err
	}
	var left map[string]string
	if name != "" {
		s.attaches(l.ctx, w, v.Name, name)
		if left, err = demand.Attached(name, src, l); err != nil && !published {
			return nil, err
		}
	}
	asked, err := demand.Persistent(p, v, src, left, published, l)
	if err != nil {
		return nil, err
	}
	asked.Attachable = name != ""
	return asked, nil
}

// unmountDriven takes the volumes of drivers away from a pod.
func (s *Service) unmountDriven(ctx context.Context, uid types.UID) error {
	if !s.csi.Uses(uid) {
		return nil
	}
	if err := s.host.Release(uid); err != nil {
		return err
	}
	err := s.csi.Unmount(ctx, uid)
	s.publishNode(ctx)
	return err
}

// measure says how full a volume is. It may hang.
func (s *Service) measure(path string) (*measure.Reading, error) {
	r, err := s.csi.Measure(context.Background(), path, s.gate("CSIVolumeHealth"))
	if errors.Is(err, csi.ErrNoStats) {
		return s.host.Measure(path)
	}
	return r, err
}

// Driver implements demand.Objects.
func (l lookups) Driver(name string) (*storagev1.CSIDriver, error) {
	data, err := l.object(l.s.objects, "CSIDriver", "", name)
	if errors.Is(err, content.ErrAbsent) {
		return nil, nil //nolint:nilnil // as documented
	}
	if err != nil {
		return nil, err
	}
	d := &storagev1.CSIDriver{}
	return d, d.Unmarshal(data)
}

// Attachment implements demand.Objects.
func (l lookups) Attachment(name string) (*storagev1.VolumeAttachment, error) {
	data, err := l.object(l.s.objects, "VolumeAttachment", "", name)
	if err != nil {
		return nil, err
	}
	a := &storagev1.VolumeAttachment{}
	return a, a.Unmarshal(data)
}

// NodeName implements demand.Objects.
func (l lookups) NodeName() string {
	conf, ok := l.s.kubelet.Get("kubelet")
	if !ok {
		return ""
	}
	return conf.Node.Name
}

// Gate implements demand.Objects.
func (l lookups) Gate(name string) bool { return l.s.gate(name) }

// gate tells whether a feature gate is on.
func (s *Service) gate(name string) bool {
	conf, ok := s.kubelet.Get("kubelet")
	return ok && conf.Gate(name)
}

// DriverToken implements demand.Objects.
func (l lookups) DriverToken(p *v1.Pod, audience string, life time.Duration) (string, time.Time, error) {
	req := &configv1.TokenRequest{
		Namespace: p.Namespace, ServiceAccount: accountOf(p), Expiration: durationpb.New(life), PodName: p.Name, PodUid: string(p.UID),
	}
	if audience != "" {
		req.Audiences = []string{audience}
	}
	resp, err := l.s.tokens.Token(l.ctx, req)
	if rpc.Is(err, rpc.Unavailable) {
		return "", time.Time{}, fmt.Errorf("%w: %w", content.ErrWait, err)
	}
	if err != nil {
		return "", time.Time{}, err
	}
	return resp.GetToken(), resp.GetExpiresAt().AsTime(), nil
}
