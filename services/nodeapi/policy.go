package nodeapi

import (
	"cmp"
	"crypto/x509"
	"fmt"

	"github.com/sextant-node/sextant/pkg/kubeconf"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
)

// policyOf is who may do what under a configuration.
func policyOf(conf *kubeconf.Config, cfg Config, files *configv1.Serving) (*auth.Policy, error) {
	a, z := conf.Kubelet.Authentication, conf.Kubelet.Authorization
	policy := &auth.Policy{
		Tokens: is(a.Webhook.Enabled, false), TokenTTL: a.Webhook.CacheTTL.Duration,
		Anonymous:   is(a.Anonymous.Enabled, false),
		AlwaysAllow: z.Mode == "AlwaysAllow",
		AllowedTTL:  z.Webhook.CacheAuthorizedTTL.Duration, ForbiddenTTL: z.Webhook.CacheUnauthorizedTTL.Duration,
		Node:       cmp.Or(cfg.NodeName, conf.Node.Name),
		GetStreams: cfg.GetStreams,
	}
	if a.X509.ClientCAFile == "" {
		return policy, nil
	}
	data, err := clientCA(a.X509.ClientCAFile, files)
	if err != nil {
		return nil, err
	}
	policy.ClientCAs = x509.NewCertPool()
	if !policy.ClientCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("authentication.x509.clientCAFile: %s holds no certificate", a.X509.ClientCAFile)
	}
	return policy, nil
}
