package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// User is who a caller turned out to be.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Anonymous is a caller without credentials, where they are let in.
var Anonymous = User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}

// authenticated is the group of every caller that showed credentials.
const authenticated = "system:authenticated"

// Policy is the part of the KubeletConfiguration that matters here.
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
	policy   func() Policy
	reviewer Reviewer
	now      func() time.Time
	tokens   *cache[*User] // nil: the API server did not know the token
	access   *cache[authorizationv1.SubjectAccessReviewStatus]
}

// NewGate makes a gate; policy is asked at each request.
func NewGate(policy func() Policy, reviewer Reviewer, now func() time.Time) *Gate {
	return &Gate{
		policy: policy, reviewer: reviewer, now: now,
		tokens: newCache[*User](4096), access: newCache[authorizationv1.SubjectAccessReviewStatus](16384),
	}
}

// ErrUnauthenticated says that a caller could not be identified.
var ErrUnauthenticated = errors.New("Unauthorized") // the kubelet's body, word for word

// Identify finds out who sent a request. Credentials that are shown and wrong are
// refused, also where a caller without any would be let in.
func (g *Gate) Identify(r *http.Request) (User, error) {
	policy := g.policy()
	user, certificate := fromCertificate(r, policy, g.now())
	if certificate == good {
		return user, nil
	}
	if token, ok := bearer(r); ok && policy.Tokens {
		return g.identifyToken(r.Context(), token, policy)
	}
	if certificate == none && policy.Anonymous {
		return Anonymous, nil
	}
	return User{}, ErrUnauthenticated
}

// shown is what a request has by way of a client certificate.
type shown int

const (
	none shown = iota // or nobody asks for one
	good
	bad
)

// fromCertificate takes the name from the subject: CN is the user, O the groups
// (the x509 request authenticator's rule).
func fromCertificate(r *http.Request, policy Policy, now time.Time) (User, shown) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || policy.ClientCAs == nil {
		return User{}, none
	}
	intermediates := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	leaf := r.TLS.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: policy.ClientCAs, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil || leaf.Subject.CommonName == "" {
		return User{}, bad
	}
	return User{Name: leaf.Subject.CommonName, Groups: withAuthenticated(leaf.Subject.Organization)}, good
}

func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, authenticated) {
		return groups
	}
	return append(slices.Clone(groups), authenticated)
}

func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "bearer") && token != ""
}

func (g *Gate) identifyToken(ctx context.Context, token string, policy Policy) (User, error) {
	now := g.now()
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
	user, known := g.tokens.get(key, now)
	if !known {
		review, err := g.reviewer.ReviewToken(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
		if err != nil {
			return User{}, fmt.Errorf("token review: %w", err)
		}
		if review.Status.Authenticated {
			u := review.Status.User
			user = &User{Name: u.Username, UID: u.UID, Groups: withAuthenticated(u.Groups), Extra: map[string][]string{}}
			for k, v := range u.Extra {
				user.Extra[k] = v
			}
		}
		g.tokens.put(key, user, now.Add(policy.TokenTTL), now)
	}
	if user == nil {
		return User{}, ErrUnauthenticated
	}
	return *user, nil
}

// Authorize tells whether a user may make a request; reason is for the caller.
// An API server that cannot be asked is an error, and a refusal.
func (g *Gate) Authorize(ctx context.Context, user User, method, path string) (allowed bool, reason string, err error) {
	policy := g.policy()
	if policy.AlwaysAllow {
		return true, "", nil
	}
	verb, subresources := Verb(method), Subresources(path)
	for _, subresource := range subresources {
		status, err := g.review(ctx, user, verb, subresource, policy)
		if err != nil {
			return false, "", fmt.Errorf("access review: %w", err)
		}
		if status.Allowed {
			return true, "", nil
		}
	}
	return false, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", user.Name, verb, subresources), nil
}

func (g *Gate) review(ctx context.Context, user User, verb, subresource string, policy Policy) (authorizationv1.SubjectAccessReviewStatus, error) {
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
	review, err := g.reviewer.ReviewAccess(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	ttl := policy.ForbiddenTTL
	if review.Status.Allowed {
		ttl = policy.AllowedTTL
	}
	g.access.put(key, review.Status, now.Add(ttl), now)
	return review.Status, nil
}
