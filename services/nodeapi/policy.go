package nodeapi

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
)

// policyOf is who may do what under a configuration.
func policyOf(conf *kubeconf.Config, node string) (*auth.Policy, error) {
	a, z := conf.Kubelet.Authentication, conf.Kubelet.Authorization
	is := func(b *bool) bool { return b != nil && *b }
	policy := &auth.Policy{
		Tokens: is(a.Webhook.Enabled), TokenTTL: a.Webhook.CacheTTL.Duration,
		Anonymous:   is(a.Anonymous.Enabled),
		AlwaysAllow: z.Mode == "AlwaysAllow",
		AllowedTTL:  z.Webhook.CacheAuthorizedTTL.Duration, ForbiddenTTL: z.Webhook.CacheUnauthorizedTTL.Duration,
		Node: cmp.Or(node, conf.Node.Name),
	}
	if a.X509.ClientCAFile == "" {
		return policy, nil
	}
	data, err := os.ReadFile(a.X509.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
	}
	policy.ClientCAs = x509.NewCertPool()
	if !policy.ClientCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("authentication.x509.clientCAFile: %s holds no certificate", a.X509.ClientCAFile)
	}
	return policy, nil
}
