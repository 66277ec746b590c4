// SPDX-License-Identifier: Apache-2.0

package credprovider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullauth"
)

// Subject is the pod an image is for.
type Subject struct {
	Namespace, Pod, PodUID string
	// Account is the name of its service account; empty for none (static pods).
	Account string
}

// Accounts knows service accounts; config is one.
type Accounts interface {
	// Account reads who an account is.
	Account(ctx context.Context, namespace, name string) (uid string, annotations map[string]string, err error)
	// Token is one for an audience, of the pod's account, which has that UID, bound
	// to the pod.
	Token(ctx context.Context, who Subject, accountUID, audience string) (string, error)
}

// grant is what a plugin gets of a pod. The zero value has nothing.
type grant struct {
	token       string
	annotations map[string]string
	account     *pullauth.Account
	// key keeps apart what is cached for another grant.
	key string
}

// grant makes one as the provider's tokenAttributes ask (KEP-4412); nil when the
// plugin is not to be asked for this pod.
func (p *Plugins) grant(ctx context.Context, provider kubeletv1.CredentialProvider, who Subject) (*grant, error) {
	t := provider.TokenAttributes
	if t == nil {
		return &grant{}, nil
	}
	if who.Account == "" {
		if *t.RequireServiceAccount {
			return nil, nil
		}
		return &grant{}, nil
	}
	account, annotations, err := p.account(ctx, provider, who)
	if err != nil || account == nil {
		return nil, err
	}
	g := &grant{account: account, annotations: annotations}
	if g.token, err = p.accounts.Token(ctx, who, account.UID, t.ServiceAccountTokenAudience); err != nil {
		return nil, fmt.Errorf("service account token: %w", err)
	}
	parts := []string{account.Namespace, account.Name, account.UID}
	for _, k := range slices.Sorted(maps.Keys(annotations)) {
		parts = append(parts, k, annotations[k])
	}
	if t.CacheType == kubeletv1.TokenServiceAccountTokenCacheType {
		sum := sha256.Sum256([]byte(g.token))
		parts = append(parts, "token", hex.EncodeToString(sum[:]))
	}
	for _, part := range parts {
		g.key += "/" + strconv.Quote(part)
	}
	return g, nil
}

// account is the pod's, with the annotations the provider wants; nil when it lacks
// one that is required: by those, workloads opt in.
func (p *Plugins) account(ctx context.Context, provider kubeletv1.CredentialProvider, who Subject) (*pullauth.Account, map[string]string, error) {
	if p.accounts == nil {
		return nil, nil, errors.New("nobody hands out service account tokens")
	}
	uid, has, err := p.accounts.Account(ctx, who.Namespace, who.Account)
	if err != nil {
		return nil, nil, fmt.Errorf("service account: %w", err)
	}
	t := provider.TokenAttributes
	wanted := map[string]string{}
	for _, k := range t.RequiredServiceAccountAnnotationKeys {
		v, ok := has[k]
		if !ok {
			return nil, nil, nil
		}
		wanted[k] = v
	}
	for _, k := range t.OptionalServiceAccountAnnotationKeys {
		if v, ok := has[k]; ok {
			wanted[k] = v
		}
	}
	return &pullauth.Account{UID: uid, Namespace: who.Namespace, Name: who.Account}, wanted, nil
}

// Account is the pod's service account if a plugin is given its tokens for images
// of a repository; nil otherwise, or when it cannot be told.
func (p *Plugins) Account(ctx context.Context, cfg Config, who Subject, repository string) *pullauth.Account {
	for _, provider := range p.providers(cfg) {
		if provider.TokenAttributes == nil || who.Account == "" || !covers(provider, repository) {
			continue
		}
		account, _, err := p.account(ctx, provider, who)
		if err != nil {
			p.log.WarnContext(ctx, "service account not read", "provider", provider.Name, "error", err.Error())
		}
		if account != nil {
			return account
		}
	}
	return nil
}

// echoed reports whether a plugin answers with the token it was given although its
// answers are kept longer than that.
func (g *grant) echoed(provider kubeletv1.CredentialProvider, password string) bool {
	return g.token != "" && password == g.token && provider.TokenAttributes.CacheType != kubeletv1.TokenServiceAccountTokenCacheType
}

// tokenProblem says what is wrong with a provider's tokenAttributes, beginning
// with the field; empty for nothing.
func tokenProblem(p kubeletv1.CredentialProvider) string {
	t := p.TokenAttributes
	if t == nil {
		return ""
	}
	required, optional := t.RequiredServiceAccountAnnotationKeys, t.OptionalServiceAccountAnnotationKeys
	switch {
	case p.APIVersion != credentialproviderv1.SchemeGroupVersion.String():
		return fmt.Sprintf(": only with apiVersion %s", credentialproviderv1.SchemeGroupVersion)
	case t.ServiceAccountTokenAudience == "":
		return ".serviceAccountTokenAudience: required"
	case t.RequireServiceAccount == nil:
		return ".requireServiceAccount: required"
	case t.CacheType != kubeletv1.TokenServiceAccountTokenCacheType && t.CacheType != kubeletv1.ServiceAccountServiceAccountTokenCacheType:
		return fmt.Sprintf(".cacheType: %q: want Token or ServiceAccount", t.CacheType)
	case !*t.RequireServiceAccount && len(required) > 0:
		return ".requiredServiceAccountAnnotationKeys: requireServiceAccount must be true for them"
	}
	for field, keys := range map[string][]string{"required": required, "optional": optional} {
		for i, k := range keys {
			switch {
			case len(validation.IsQualifiedName(strings.ToLower(k))) > 0:
				return fmt.Sprintf(".%sServiceAccountAnnotationKeys[%d]: %q is no key of an annotation", field, i, k)
			case slices.Contains(keys[:i], k):
				return fmt.Sprintf(".%sServiceAccountAnnotationKeys[%d]: %q is there twice", field, i, k)
			case field == "optional" && slices.Contains(required, k):
				return fmt.Sprintf(": the annotation %q is both required and optional", k)
			}
		}
	}
	return ""
}
