// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/wire"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/podcert"
)

// Certificate implements content.Objects.
func (l lookups) Certificate(p *v1.Pod, volume string, source int, spec *v1.PodCertificateProjection) (key, chain []byte, refresh time.Time, err error) {
	req := &configv1.CertifyPodRequest{
		Namespace: p.Namespace, PodName: p.Name, PodUid: string(p.UID), ServiceAccount: pod.ServiceAccount(p),
		SignerName: spec.SignerName, Annotations: spec.UserAnnotations, MaxExpirationSeconds: ptr.Deref(spec.MaxExpirationSeconds, 0),
	}
	ask := func(r podcert.Request) (podcert.Answer, error) {
		req.Name, req.Pkcs10 = r.Name, r.PKCS10
		resp, err := l.tokens.CertifyPod(l.ctx, req)
		switch {
		case r.Name != "" && rpc.Is(err, rpc.NotFound):
			return podcert.Answer{}, fmt.Errorf("%w: %w", podcert.ErrGone, err)
		case rpc.Is(err, rpc.Unavailable):
			return podcert.Answer{}, fmt.Errorf("%w: %w", content.ErrWait, err)
		case err != nil:
			return podcert.Answer{}, err
		}
		a := podcert.Answer{Name: resp.GetName(), Chain: resp.GetCertificateChain(), Refresh: wire.TimeOf(resp.GetBeginRefreshAt())}
		if resp.GetState() == configv1.CertifyState_CERTIFY_STATE_DENIED {
			a.Refused = fmt.Sprintf("PodCertificateRequest %s/%s: %s", p.Namespace, a.Name, resp.GetMessage())
		}
		return a, nil
	}
	c, refresh, err := l.certificates.Get(podcert.Source{UID: p.UID, Volume: volume, Index: source}, spec.KeyType, ask)
	if errors.Is(err, podcert.ErrWait) {
		err = fmt.Errorf("%w: %w", content.ErrWait, err)
	}
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	return c.Key, c.Chain, refresh, nil
}
