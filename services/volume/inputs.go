// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/podcert"
)

// inputs is what other services have told this one, and the certificates of pods.
type inputs struct {
	objects *feed.Replica[*configv1.Object]
	secrets *feed.Replica[*configv1.Object]
	node    *feed.Replica[*resourcev1.NodeResources]
	kubelet *feed.Replica[*kubeletconfig.Config]
	tokens  configv1.ConfigServiceClient

	certificates *podcert.Keeper
	fileLabel    func(*v1.SELinuxOptions) (string, error)
	now          func() time.Time
	// configured: the configuration is another. Capacity 1.
	configured signal.Signal
}

func newInputs(kit *service.Kit, fileLabel func(*v1.SELinuxOptions) (string, error), now func() time.Time) (*inputs, error) {
	in := &inputs{certificates: podcert.New(now), fileLabel: fileLabel, now: now, configured: signal.New()}
	config, err := kit.Dial(house.Config)
	if err != nil {
		return nil, err
	}
	in.tokens = configv1.NewConfigServiceClient(config)
	service.Replicate(kit, &err, house.ConfigObjects, feed.Whole[*configv1.Object], &in.objects)
	service.Replicate(kit, &err, house.ConfigSecrets, feed.Whole[*configv1.Object], &in.secrets)
	service.Replicate(kit, &err, house.ResourceNode, feed.Whole[*resourcev1.NodeResources], &in.node)
	service.Replicate(kit, &err, house.ConfigKubelet, kubeletconfig.Decode, &in.kubelet)
	if err != nil {
		return nil, err
	}
	in.kubelet.Watch(func([]string) { in.configured.Send() })
	kit.Configured(func() uint64 {
		c, _ := in.kubelet.Get("kubelet")
		return kubeletconfig.GenerationOf(c)
	})
	return in, nil
}

// gate reports whether a feature gate is known to be on.
func (in *inputs) gate(name string) bool {
	conf, ok := in.kubelet.Get("kubelet")
	return ok && conf.Gate(name)
}

// defaultPeriod is that of measuring unless the configuration says otherwise (the kubelet's
// volumeStatsAggPeriod).
const defaultPeriod = time.Minute

// statsPeriod is how old a measurement may be; 0 when volumes are not to be measured.
func (in *inputs) statsPeriod() time.Duration {
	if conf, ok := in.kubelet.Get("kubelet"); ok {
		return max(0, conf.Kubelet.VolumeStatsAggPeriod.Duration)
	}
	return defaultPeriod
}

// allocatable is what pods of the node may have.
func (in *inputs) allocatable() (v1.ResourceList, error) {
	node, ok := in.node.Get("node")
	if !ok {
		return nil, content.ErrWait
	}
	list := v1.ResourceList{}
	for name, text := range node.GetAllocatable() {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("allocatable %s: %w", name, err)
		}
		list[v1.ResourceName(name)] = q
	}
	return list, nil
}

// lookups implements plugin.Objects for one volume of a pod.
type lookups struct {
	*inputs
	ctx context.Context
	// note takes the key of each object before it is read, so that no change is missed.
	note func(key string)
}

// object finds an object by config's key, kind/namespace/name.
func (l lookups) object(m *feed.Replica[*configv1.Object], kind, namespace, name string) ([]byte, error) {
	key := volumetype.Ref{Kind: kind, Namespace: namespace, Name: name}.Key()
	l.note(key)
	o, ok := m.Get(key)
	switch {
	case !ok:
		return nil, content.ErrWait
	case o.GetAbsent():
		return nil, content.ErrAbsent
	case len(o.GetObject()) == 0:
		if o.GetError() != "" {
			return nil, errors.New(o.GetError())
		}
		return nil, content.ErrWait
	}
	return o.GetObject(), nil
}

// get reads an object of the API into a value.
func get[T any, P interface {
	*T
	Unmarshal([]byte) error
}](l lookups, from *feed.Replica[*configv1.Object], kind, namespace, name string) (P, error) {
	data, err := l.object(from, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	o := P(new(T))
	return o, o.Unmarshal(data)
}

// ConfigMap implements content.Objects.
func (l lookups) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return get[v1.ConfigMap](l, l.objects, volumetype.KindConfigMap, namespace, name)
}

// Secret implements content.Objects.
func (l lookups) Secret(namespace, name string) (*v1.Secret, error) {
	return get[v1.Secret](l, l.secrets, volumetype.KindSecret, namespace, name)
}

// TrustBundle implements content.Objects.
func (l lookups) TrustBundle(s *v1.ClusterTrustBundleProjection) (string, error) {
	kind, name, err := pod.TrustBundleName(s)
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", content.ErrAbsent
	}
	b, err := get[certificatesv1beta1.ClusterTrustBundle](l, l.objects, kind, "", name)
	if err != nil {
		return "", err
	}
	return b.Spec.TrustBundle, nil
}

// Claim implements claim.Objects.
func (l lookups) Claim(namespace, name string) (*v1.PersistentVolumeClaim, error) {
	c, err := get[v1.PersistentVolumeClaim](l, l.objects, volumetype.KindClaim, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("persistentvolumeclaims %q %w", name, err)
	}
	return c, nil
}

// Volume implements claim.Objects.
func (l lookups) Volume(name string) (*v1.PersistentVolume, error) {
	pv, err := get[v1.PersistentVolume](l, l.objects, "PersistentVolume", "", name)
	if err != nil {
		return nil, fmt.Errorf("persistentvolumes %q %w", name, err)
	}
	return pv, nil
}

// Node implements claim.Objects.
func (l lookups) Node() (*v1.Node, error) {
	conf, ok := l.kubelet.Get("kubelet")
	if !ok {
		return nil, content.ErrWait
	}
	return get[v1.Node](l, l.objects, "Node", "", conf.Node.Name)
}

// leastRefresh keeps a clock that is ahead from asking without end.
const leastRefresh = 10 * time.Second

// mostOverdue is the longest that a token which is to be replaced is not asked for again: as
// often as a kubelet looks at a pod.
const mostOverdue = time.Minute

// renewal is how soon to ask for a token again that lives so much longer, of the life that
// was asked for. It is replaced when four fifths of that are over, or after a day (the
// kubelet's rule). One that is older could not be replaced. To a clock that is behind, its
// end is far away: it is taken to live no longer than was asked for.
func renewal(left, life time.Duration) time.Duration {
	left = min(left, life)
	wait := left - life/5
	if wait <= 0 {
		wait = min(left*4/5, mostOverdue)
	}
	return max(min(wait, 24*time.Hour), leastRefresh)
}

// Token implements content.Objects. The token may be one that an earlier call was answered
// with.
func (l lookups) Token(p *v1.Pod, spec *v1.ServiceAccountTokenProjection) (string, time.Time, error) {
	ttl := pod.TokenLife(spec.ExpirationSeconds)
	token, expires, err := l.DriverToken(p, spec.Audience, ttl)
	if err != nil {
		return "", time.Time{}, err
	}
	now := l.now()
	return token, now.Add(renewal(expires.Sub(now), ttl)), nil
}

// DriverToken implements demand.Objects.
func (l lookups) DriverToken(p *v1.Pod, audience string, life time.Duration) (string, time.Time, error) {
	req := &configv1.TokenRequest{
		Namespace: p.Namespace, ServiceAccount: pod.ServiceAccount(p), Expiration: durationpb.New(life), PodName: p.Name, PodUid: string(p.UID),
	}
	if audience != "" {
		req.Audiences = []string{audience}
	}
	resp, err := l.tokens.Token(l.ctx, req)
	if rpc.Is(err, rpc.Unavailable) {
		return "", time.Time{}, fmt.Errorf("%w: %w", content.ErrWait, err)
	}
	if err != nil {
		return "", time.Time{}, err
	}
	return resp.GetToken(), resp.GetExpiresAt().AsTime(), nil
}

// allocatableKey stands for the node's allocatable resources among the objects that a
// volume is made of.
const allocatableKey = "allocatable"

func (l lookups) Allocatable() (v1.ResourceList, error) {
	l.note(allocatableKey)
	return l.allocatable()
}

// AllocatableOnce implements plugin.Objects.
func (l lookups) AllocatableOnce() (v1.ResourceList, error) { return l.allocatable() }

// Standalone implements plugin.Objects.
func (l lookups) Standalone() (bool, error) {
	conf, ok := l.kubelet.Get("kubelet")
	if !ok {
		return false, content.ErrWait
	}
	return conf.Standalone(), nil
}

// Driver implements demand.Objects.
func (l lookups) Driver(name string) (*storagev1.CSIDriver, error) {
	d, err := get[storagev1.CSIDriver](l, l.objects, volumetype.KindCSIDriver, "", name)
	if errors.Is(err, content.ErrAbsent) {
		return nil, nil //nolint:nilnil // as documented
	}
	return d, err
}

// Attachment implements demand.Objects.
func (l lookups) Attachment(name string) (*storagev1.VolumeAttachment, error) {
	return get[storagev1.VolumeAttachment](l, l.objects, "VolumeAttachment", "", name)
}

// NodeName implements demand.Objects.
func (l lookups) NodeName() (string, error) {
	conf, ok := l.kubelet.Get("kubelet")
	if !ok {
		return "", content.ErrWait
	}
	return conf.Node.Name, nil
}

// Gate implements demand.Objects.
func (l lookups) Gate(name string) (bool, error) {
	conf, ok := l.kubelet.Get("kubelet")
	if !ok {
		return false, content.ErrWait
	}
	return conf.Gate(name), nil
}

// FileLabel implements demand.Objects.
func (l lookups) FileLabel(o *v1.SELinuxOptions) (string, error) { return l.fileLabel(o) }
