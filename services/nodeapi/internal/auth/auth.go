// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Policy is what the KubeletConfiguration says about callers. It is not changed once it is
// in force.
type Policy struct {
	// ClientCAs verify client certificates; with nil none is accepted.
	ClientCAs *x509.CertPool
	// Tokens: bearer tokens are reviewed, and the answer is kept for TokenTTL.
	Tokens   bool
	TokenTTL time.Duration
	// Anonymous: callers without credentials are system:anonymous.
	Anonymous bool
	// AlwaysAllow skips authorization.
	AlwaysAllow              bool
	AllowedTTL, ForbiddenTTL time.Duration
	// GetStreams: the verb get suffices for a GET of a stream, as in the kubelet; see
	// VerbOf.
	GetStreams bool
	// Node is the node's name: the object every review is about.
	Node string
}

// User is an authenticated caller.
type User = user.DefaultInfo

// Gate authenticates and authorizes. Safe for concurrent use.
type Gate struct {
	reviewer Reviewer
	now      clock
	// tokens are those that the API server knows, unknown those that it does not: many
	// bad tokens do not make it forget a good one.
	tokens, unknown, access *cache.LRUExpireCache
	tokenReviews            *reviews[*authenticationv1.TokenReview]
	// accessReviews have a share of their own: their callers are authenticated.
	accessReviews *reviews[*authorizationv1.SubjectAccessReview]
	inForce       atomic.Pointer[rules]
}

// rules are a policy and what follows from it.
type rules struct {
	policy *Policy
	// certificates identifies by a client certificate alone; nil where there is no CA.
	certificates  authenticator.Request
	authenticator authenticator.Request
}

// clock implements cache.Clock.
type clock func() time.Time

// Now implements cache.Clock.
func (c clock) Now() time.Time { return c() }

// Authorize reports whether a user may make a request; reason is the answer if not. With
// an error (the API server cannot be asked; with ErrBusy, was not) the request is denied.
func (g *Gate) Authorize(r *http.Request, user User) (allowed bool, reason string, err error) {
	policy := g.inForce.Load().policy
	if policy.AlwaysAllow {
		return true, "", nil
	}
	ctx := withOrigin(r)
	verb, subresources := VerbOf(r.Method, r.URL.Path, policy.GetStreams), Subresources(r.URL.Path)
	for _, subresource := range subresources {
		status, err := g.review(ctx, user, verb, subresource, policy)
		if err != nil {
			return false, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Name, verb, subresource),
				fmt.Errorf("access review: %w", err)
		}
		if status.Allowed {
			return true, "", nil
		}
	}
	return false, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", user.Name, verb, subresources), nil
}

func (g *Gate) review(ctx context.Context, user User, verb, subresource string, policy *Policy) (authorizationv1.SubjectAccessReviewStatus, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: policy.Node,
		},
	}
	for k, v := range user.Extra {
		spec.Extra[k] = v
	}
	key, err := accessKey(&spec)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	if status, ok := g.access.Get(key); ok {
		return status.(authorizationv1.SubjectAccessReviewStatus), nil
	}
	review, err := g.accessReviews.ask(ctx, key, func(ctx context.Context) (*authorizationv1.SubjectAccessReview, error) {
		return g.reviewer.ReviewAccess(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
	})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	if review.Status.Allowed && review.Status.Denied {
		return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("the answer is both allowed and denied")
	}
	ttl := policy.ForbiddenTTL
	if review.Status.Allowed {
		ttl = policy.AllowedTTL
	}
	g.access.Add(key, review.Status, ttl)
	return review.Status, nil
}

// accessKey differs wherever two reviews may: the wire form has the length of each text.
// Its size does not depend on the names in it.
func accessKey(spec *authorizationv1.SubjectAccessReviewSpec) (string, error) {
	wire, err := spec.Marshal()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(wire)
	return string(sum[:]), nil
}

type userKey struct{}

// WithUser adds to a request's context who sent it.
func WithUser(ctx context.Context, user User) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// UserOf is who sent a request, empty without WithUser.
func UserOf(ctx context.Context) User {
	user, _ := ctx.Value(userKey{}).(User)
	return user
}
