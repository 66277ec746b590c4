package auth

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// reviewTimeout bounds how long one review may hold a request up, retries of
// config included (apiserver's limit for delegated reviews).
const reviewTimeout = 10 * time.Second

// Policy is the part of the KubeletConfiguration that matters here. It is a
// value: a changed configuration makes a new one.
type Policy struct {
	// ClientCAs verify client certificates; nil takes none.
	ClientCAs *x509.CertPool
	// Tokens lets bearer tokens be reviewed, for TokenTTL.
	Tokens   bool
	TokenTTL time.Duration
	// Anonymous lets callers without credentials in.
	Anonymous bool
	// AlwaysAllow skips authorization.
	AlwaysAllow              bool
	AllowedTTL, ForbiddenTTL time.Duration
	// GetStreams lets the verb get suffice for a GET of a stream, as the kubelet
	// does; see VerbOf.
	GetStreams bool
	// Node is the node's name: the object every review is about.
	Node string
}

// Reviewer asks the API server, through config.
type Reviewer interface {
	ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	ReviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
}

// Gate authenticates and authorizes. Safe for concurrent use.
type Gate struct {
	policy   func() *Policy
	reviewer Reviewer
	now      func() time.Time
	tokens   *cache[user.Info] // nil: the API server did not know the token
	access   *cache[authorizationv1.SubjectAccessReviewStatus]
	inForce  atomic.Pointer[rules]
}

// rules are a policy and what follows from it.
type rules struct {
	policy        *Policy
	authenticator authenticator.Request
}

// NewGate makes a gate; policy is asked at each request and never nil.
func NewGate(policy func() *Policy, reviewer Reviewer, now func() time.Time) *Gate {
	return &Gate{
		policy: policy, reviewer: reviewer, now: now,
		tokens: newCache[user.Info](4096), access: newCache[authorizationv1.SubjectAccessReviewStatus](16384),
	}
}

// rules are made anew with each new policy; what was reviewed stays known.
func (g *Gate) rules() *rules {
	policy := g.policy()
	if have := g.inForce.Load(); have != nil && have.policy == policy {
		return have
	}
	fresh := &rules{policy, g.chain(policy)}
	g.inForce.Store(fresh)
	return fresh
}

// Authorize tells whether a user may make a request; reason is for the caller
// who may not. An API server that cannot be asked is an error, and a refusal.
func (g *Gate) Authorize(ctx context.Context, user User, method, path string) (allowed bool, reason string, err error) {
	policy := g.rules().policy
	if policy.AlwaysAllow {
		return true, "", nil
	}
	verb, subresources := VerbOf(method, path, policy.GetStreams), Subresources(path)
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
	now := g.now()
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: policy.Node,
		},
	}
	for k, v := range user.Extra {
		spec.Extra[k] = v
	}
	key := spec.String()
	if status, ok := g.access.get(key, now); ok {
		return status, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := g.reviewer.ReviewAccess(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
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
	g.access.put(key, review.Status, now.Add(ttl), now)
	return review.Status, nil
}
