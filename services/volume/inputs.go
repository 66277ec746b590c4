package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
)

// lookups answers package content and claim from the mirrors and from config.
type lookups struct {
	ctx context.Context
	s   *Service
	// needs takes the keys of what was asked for.
	needs map[string]bool
}

// object finds an object by config's key, kind/namespace/name.
func (l lookups) object(m *feed.Mirror[*configv1.Object], kind, namespace, name string) ([]byte, error) {
	key := kind + "/" + namespace + "/" + name
	l.needs[key] = true
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

func (l lookups) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	data, err := l.object(l.s.objects, "ConfigMap", namespace, name)
	if err != nil {
		return nil, err
	}
	c := &v1.ConfigMap{}
	return c, c.Unmarshal(data)
}

func (l lookups) Secret(namespace, name string) (*v1.Secret, error) {
	data, err := l.object(l.s.secrets, "Secret", namespace, name)
	if err != nil {
		return nil, err
	}
	c := &v1.Secret{}
	return c, c.Unmarshal(data)
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
	data, err := l.object(l.s.objects, kind, "", name)
	if err != nil {
		return "", err
	}
	b := &certificatesv1beta1.ClusterTrustBundle{}
	err = b.Unmarshal(data)
	return b.Spec.TrustBundle, err
}

// Claim implements claim.Objects.
func (l lookups) Claim(namespace, name string) (*v1.PersistentVolumeClaim, error) {
	data, err := l.object(l.s.objects, "PersistentVolumeClaim", namespace, name)
	if err != nil {
		return nil, fmt.Errorf("persistentvolumeclaims %q %w", name, err)
	}
	c := &v1.PersistentVolumeClaim{}
	return c, c.Unmarshal(data)
}

// Volume implements claim.Objects.
func (l lookups) Volume(name string) (*v1.PersistentVolume, error) {
	data, err := l.object(l.s.objects, "PersistentVolume", "", name)
	if err != nil {
		return nil, fmt.Errorf("persistentvolumes %q %w", name, err)
	}
	c := &v1.PersistentVolume{}
	return c, c.Unmarshal(data)
}

// Node implements claim.Objects.
func (l lookups) Node() (*v1.Node, error) {
	conf, ok := l.s.kubelet.Get("kubelet")
	if !ok {
		return nil, content.ErrWait
	}
	data, err := l.object(l.s.objects, "Node", "", conf.Node.Name)
	if err != nil {
		return nil, err
	}
	c := &v1.Node{}
	return c, c.Unmarshal(data)
}

// leastRefresh keeps a clock that is off from asking without end.
const leastRefresh = 10 * time.Second

// tokenTTL is what a projection without expirationSeconds gets (API default).
const tokenTTL = time.Hour

// Token asks config. It must be replaced when four fifths of its life are over,
// or after a day (the kubelet's rule).
func (l lookups) Token(p *v1.Pod, spec *v1.ServiceAccountTokenProjection) (string, time.Time, error) {
	ttl := tokenTTL
	if spec.ExpirationSeconds != nil {
		ttl = time.Duration(*spec.ExpirationSeconds) * time.Second
	}
	req := &configv1.TokenRequest{
		Namespace: p.Namespace, ServiceAccount: accountOf(p),
		Expiration: durationpb.New(ttl), PodName: p.Name, PodUid: string(p.UID),
	}
	if spec.Audience != "" {
		req.Audiences = []string{spec.Audience}
	}
	resp, err := l.s.tokens.Token(l.ctx, req)
	if rpc.Is(err, rpc.Unavailable) {
		return "", time.Time{}, fmt.Errorf("%w: %w", content.ErrWait, err)
	}
	if err != nil {
		return "", time.Time{}, err
	}
	now := l.s.now()
	left := resp.GetExpiresAt().AsTime().Sub(now)
	return resp.GetToken(), now.Add(max(min(left*4/5, 24*time.Hour), leastRefresh)), nil
}

func (l lookups) Allocatable() (v1.ResourceList, error) {
	node, ok := l.s.node.Get("node")
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

// accountOf is the service account of a pod (API default).
func accountOf(p *v1.Pod) string { return cmp.Or(p.Spec.ServiceAccountName, "default") }
