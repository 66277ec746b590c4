package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// User is who a caller turned out to be.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// ErrUnauthenticated says that a caller could not be identified.
var ErrUnauthenticated = errors.New("Unauthorized") // the kubelet's body, word for word

// chain is the kubelet's order of authenticators under a policy: certificate,
// bearer token, token of a WebSocket protocol, and whoever shows nothing.
// Credentials that are shown and wrong are refused, also where a caller without
// any would be let in.
func (g *Gate) chain(policy *Policy) authenticator.Request {
	var all []authenticator.Request
	if policy.ClientCAs != nil {
		all = append(all, requestx509.NewDynamic(func() (x509.VerifyOptions, bool) {
			options := requestx509.DefaultVerifyOptions()
			options.Roots, options.CurrentTime = policy.ClientCAs, g.now()
			return options, true
		}, requestx509.CommonNameUserConversion))
	}
	if policy.Tokens {
		tokens := tokenReview{gate: g, ttl: policy.TokenTTL}
		all = append(all, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	known := group.NewAuthenticatedGroupAdder(union.New(all...))
	if !policy.Anonymous {
		return known
	}
	return union.NewFailOnError(known, anonymous.NewAuthenticator(nil))
}

// Identify finds out who sent a request: ErrUnauthenticated alone for nobody
// known, wrapped with the cause where there is one that an operator may want to
// know.
func (g *Gate) Identify(r *http.Request) (User, error) {
	resp, ok, err := g.rules().authenticator.AuthenticateRequest(r)
	switch {
	case err != nil:
		return User{}, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	case !ok:
		return User{}, ErrUnauthenticated
	}
	u := resp.User
	return User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}, nil
}

// tokenReview asks who a token belongs to, and remembers yes and no alike; that
// nobody could be asked is not remembered.
type tokenReview struct {
	gate *Gate
	ttl  time.Duration
}

// AuthenticateToken implements authenticator.Token.
func (t tokenReview) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	g, now := t.gate, t.gate.now()
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
	known, ok := g.tokens.get(key, now)
	if !ok {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		review, err := g.reviewer.ReviewToken(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
		if err != nil {
			return nil, false, fmt.Errorf("token review: %w", err)
		}
		if review.Status.Authenticated {
			u := review.Status.User
			info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string][]string{}}
			for k, v := range u.Extra {
				info.Extra[k] = v
			}
			known = info
		} else if review.Status.Error != "" {
			return nil, false, fmt.Errorf("token review: %s", review.Status.Error)
		}
		g.tokens.put(key, known, now.Add(t.ttl), now)
	}
	if known == nil {
		return nil, false, nil
	}
	return &authenticator.Response{User: known}, true, nil
}
