// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ErrUnauthenticated says that a caller could not be identified.
var ErrUnauthenticated = errors.New("Unauthorized") // the kubelet's body, word for word

// maxToken bounds a bearer token, in bytes. Those of service accounts have about 1000; the
// API server takes 1 MiB in all headers.
const maxToken = 16 << 10

// NewGate makes a gate that lets no caller in.
func NewGate(reviewer Reviewer, now func() time.Time) *Gate {
	sized := func(size int) *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(size, clock(now)) }
	g := &Gate{
		reviewer: reviewer, now: now, tokens: sized(4096), unknown: sized(4096), access: sized(16384),
		tokenReviews: newReviews[*authenticationv1.TokenReview](), accessReviews: newReviews[*authorizationv1.SubjectAccessReview](),
	}
	g.Obey(&Policy{})
	return g
}

// Obey puts a policy in force. Reviews stay known.
func (g *Gate) Obey(p *Policy) { g.inForce.Store(g.chain(p)) }

// chain is the kubelet's order of authenticators: certificate, bearer token, token of a
// WebSocket protocol, anonymous. Wrong credentials are refused even if callers without any
// are not.
func (g *Gate) chain(policy *Policy) *rules {
	r := &rules{policy: policy}
	var all []authenticator.Request
	if policy.ClientCAs != nil {
		r.certificates = requestx509.NewDynamic(func() (x509.VerifyOptions, bool) {
			options := requestx509.DefaultVerifyOptions()
			options.Roots, options.CurrentTime = policy.ClientCAs, g.now()
			return options, true
		}, requestx509.CommonNameUserConversion)
		all = append(all, r.certificates)
	}
	if policy.Tokens {
		tokens := tokenReview{gate: g, ttl: policy.TokenTTL}
		all = append(all, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	r.authenticator = group.NewAuthenticatedGroupAdder(union.New(all...))
	if policy.Anonymous {
		r.authenticator = union.NewFailOnError(r.authenticator, anonymous.NewAuthenticator(nil))
	}
	return r
}

// Certified reports whether a connection has a client certificate that identifies its
// caller under the policy in force. It says nothing of what the caller may do.
func (g *Gate) Certified(state *tls.ConnectionState) bool {
	certificates := g.inForce.Load().certificates
	if certificates == nil {
		return false
	}
	_, ok, err := certificates.AuthenticateRequest(&http.Request{TLS: state})
	return ok && err == nil
}

// Identify authenticates a request. The error is ErrUnauthenticated, with a cause if there
// is one that concerns an operator.
func (g *Gate) Identify(r *http.Request) (User, error) {
	resp, ok, err := g.inForce.Load().authenticator.AuthenticateRequest(r.WithContext(withOrigin(r)))
	switch {
	case err != nil:
		return User{}, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	case !ok:
		return User{}, ErrUnauthenticated
	}
	u := resp.User
	return User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}, nil
}

// tokenReview authenticates tokens by reviews, and remembers both answers of the API
// server. An error is not remembered.
type tokenReview struct {
	gate *Gate
	ttl  time.Duration
}

// AuthenticateToken implements authenticator.Token.
func (t tokenReview) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	g := t.gate
	if len(token) > maxToken {
		return nil, false, fmt.Errorf("a token of %d bytes, at most %d are reviewed", len(token), maxToken)
	}
	sum := sha256.Sum256([]byte(token))
	key := string(sum[:])
	if _, ok := g.unknown.Get(key); ok {
		return nil, false, nil
	}
	known, ok := g.tokens.Get(key)
	if !ok {
		review, err := g.tokenReviews.ask(ctx, key, func(ctx context.Context) (*authenticationv1.TokenReview, error) {
			return g.reviewer.ReviewToken(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
		})
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("token review: %w", err)
		case !review.Status.Authenticated && review.Status.Error != "":
			return nil, false, fmt.Errorf("token review: %s", review.Status.Error)
		case !review.Status.Authenticated:
			g.unknown.Add(key, nil, t.ttl)
			return nil, false, nil
		}
		u := review.Status.User
		info := &User{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string][]string{}}
		for k, v := range u.Extra {
			info.Extra[k] = v
		}
		known = info
		g.tokens.Add(key, info, t.ttl)
	}
	return &authenticator.Response{User: known.(user.Info)}, true, nil
}
