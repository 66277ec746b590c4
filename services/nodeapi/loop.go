// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
	"github.com/sextant-node/sextant/services/nodeapi/internal/certificate"
	"github.com/sextant-node/sextant/services/nodeapi/internal/listen"
	"github.com/sextant-node/sextant/services/nodeapi/internal/measure"
)

// relisten is how often a port that could not be opened is tried again (kubelet: healthz
// each 5 s).
const relisten = 5 * time.Second

// loop keeps policy and ports those that the configuration asks for.
type loop struct {
	cfg          Config
	kit          *service.Kit
	in           inputs
	gate         *auth.Gate
	certificates *certificate.Manager
	ports        *listen.Ports
	routes       routes
	wake         signal.Signal
	beat         func()
}

// settled is what policy and ports were made of.
type settled struct {
	conf      *kubeletconfig.Config
	files     *configv1.Serving
	certified bool
}

// run works until the context ends. What fails is tried again; the former policy and ports
// stay in force meanwhile.
func (l *loop) run(ctx context.Context) error {
	defer l.ports.Close()
	var done settled
	for {
		l.beat()
		if now := (settled{l.in.conf(), l.in.files(), l.certificates.Current() != nil}); now.conf != nil {
			var err error
			if now != done {
				if err = l.settle(ctx, now); err == nil {
					done = now
				}
			}
			l.report(errors.Join(err, l.certificates.Problem()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-time.After(relisten):
		}
	}
}

func (l *loop) settle(ctx context.Context, now settled) error {
	policy, err := policyOf(now.conf, l.cfg, now.files)
	if err != nil {
		return err
	}
	l.gate.Obey(policy)
	measure.Contention(&now.conf.Kubelet)
	ports, err := l.routes.ports(&now.conf.Kubelet, l.certificates)
	if err != nil {
		return err
	}
	return l.ports.Set(ctx, ports)
}

func (l *loop) report(err error) {
	switch {
	case err == nil:
		l.kit.Serving()
	case errors.Is(err, certificate.ErrWaiting):
		l.kit.Waiting(err.Error())
	default:
		l.kit.Failing(err.Error())
	}
}

// policyOf is what a configuration says about callers.
func policyOf(conf *kubeletconfig.Config, cfg Config, files *configv1.Serving) (*auth.Policy, error) {
	a, z := conf.Kubelet.Authentication, conf.Kubelet.Authorization
	policy := &auth.Policy{
		Tokens: ptr.Deref(a.Webhook.Enabled, false), TokenTTL: a.Webhook.CacheTTL.Duration,
		Anonymous:   ptr.Deref(a.Anonymous.Enabled, false),
		AlwaysAllow: z.Mode == "AlwaysAllow",
		AllowedTTL:  z.Webhook.CacheAuthorizedTTL.Duration, ForbiddenTTL: z.Webhook.CacheUnauthorizedTTL.Duration,
		Node:       cmp.Or(cfg.NodeName, conf.Node.Name),
		GetStreams: cfg.GetStreams,
	}
	switch path := a.X509.ClientCAFile; {
	case path == "":
		return policy, nil
	case files.GetClientCaFile() != path:
		return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", certificate.ErrWaiting)
	case len(files.GetClientCa()) == 0:
		return nil, errors.New(files.GetClientCaError())
	}
	policy.ClientCAs = x509.NewCertPool()
	if !policy.ClientCAs.AppendCertsFromPEM(files.GetClientCa()) {
		return nil, fmt.Errorf("authentication.x509.clientCAFile: %s holds no certificate", a.X509.ClientCAFile)
	}
	return policy, nil
}
