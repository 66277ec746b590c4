// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// apiServer answers reviews: of tokens that begin with "good", and of users that
// are in the group "ops" by name.
type apiServer struct {
	mu             sync.Mutex
	tokens, access int
	wait           chan struct{} // nil for an answer at once
}

func (a *apiServer) count(of *int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*of++
}

func (a *apiServer) asked() (tokens, access int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tokens, a.access
}

func (a *apiServer) pause(ctx context.Context) error {
	if a.wait == nil {
		return nil
	}
	select {
	case <-a.wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *apiServer) ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	a.count(&a.tokens)
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: strings.HasPrefix(r.Spec.Token, "good"), User: authenticationv1.UserInfo{Username: r.Spec.Token}}
	return r, a.pause(ctx)
}

func (a *apiServer) ReviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	a.count(&a.access)
	for _, group := range r.Spec.Groups {
		r.Status.Allowed = r.Status.Allowed || group == "ops"
	}
	return r, a.pause(ctx)
}

func newTestGate(a *apiServer) *Gate {
	policy := &Policy{Tokens: true, TokenTTL: time.Hour, AllowedTTL: time.Hour, ForbiddenTTL: time.Hour, Node: "n1"}
	g := NewGate(a, time.Now)
	g.Obey(policy)
	return g
}

func requestFrom(from, token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/pods", nil)
	r.RemoteAddr = from
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// TestTokenSize: what is too long to be a token costs no review, however it comes.
func TestTokenSize(t *testing.T) {
	a := &apiServer{}
	g := newTestGate(a)
	for _, test := range []struct {
		size, reviews int
	}{{maxToken, 1}, {maxToken + 1, 0}, {1 << 20, 0}} {
		token := strings.Repeat("x", test.size)
		inProtocol := requestFrom("10.0.0.1:1", "")
		inProtocol.Header.Set("Connection", "upgrade")
		inProtocol.Header.Set("Upgrade", "websocket")
		inProtocol.Header.Set("Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(token))+",x")
		for how, r := range map[string]*http.Request{"bearer": requestFrom("10.0.0.1:1", token), "WebSocket": inProtocol} {
			g.unknown.RemoveAll(func(any) bool { return true })
			before, _ := a.asked()
			if _, err := g.Identify(r); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%s, %d bytes: %v", how, test.size, err)
			}
			if after, _ := a.asked(); after-before != test.reviews {
				t.Errorf("%s, %d bytes: %d reviews, want %d", how, test.size, after-before, test.reviews)
			}
		}
	}
}

// TestReviewsLeaveRoom: one address has only so many reviews under way, all have
// only so many, and those that are known need none.
func TestReviewsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &apiServer{}
		g := newTestGate(a)
		if _, err := g.Identify(requestFrom("10.0.0.9:1", "good-old")); err != nil {
			t.Fatal(err)
		}
		a.wait = make(chan struct{})
		ended := make(chan error)
		ask := func(from, token string) {
			go func() {
				_, err := g.Identify(requestFrom(from, token))
				ended <- err
			}()
			synctest.Wait()
		}
		// Of each token there is one review, whoever else has it meanwhile.
		for i := range maxReviewsOne {
			for range 3 {
				ask("10.0.0.1:1", fmt.Sprint("bad-", i))
			}
		}
		if tokens, _ := a.asked(); tokens != 1+maxReviewsOne {
			t.Errorf("%d reviews, want %d", tokens, 1+maxReviewsOne)
		}
		refused := func(from, token string) {
			t.Helper()
			if _, err := g.Identify(requestFrom(from, token)); !errors.Is(err, ErrBusy) {
				t.Errorf("%s from %s: %v, want ErrBusy", token, from, err)
			}
		}
		refused("10.0.0.1:2", "one-more")
		if _, err := g.Identify(requestFrom("10.0.0.1:2", "good-old")); err != nil {
			t.Errorf("a token that is known: %v", err)
		}
		for i := range maxReviews - maxReviewsOne {
			ask(fmt.Sprintf("10.0.1.%d:1", i), fmt.Sprint("good-", i))
		}
		refused("10.0.2.1:1", "one-more")
		// Who is identified is authorized all the same, and what was asked is remembered.
		go func() {
			allowed, _, err := g.Authorize(requestFrom("10.0.0.1:1", ""), User{Name: "x", Groups: []string{"ops"}})
			if !allowed && err == nil {
				err = errors.New("it is not allowed")
			}
			ended <- err
		}()
		synctest.Wait()
		close(a.wait)
		good := 0
		for range 3*maxReviewsOne + maxReviews - maxReviewsOne + 1 {
			if err := <-ended; err == nil {
				good++
			} else if !errors.Is(err, ErrUnauthenticated) {
				t.Error(err)
			}
		}
		if good != maxReviews-maxReviewsOne+1 {
			t.Errorf("%d callers passed, want %d", good, maxReviews-maxReviewsOne+1)
		}
		a.wait = nil
		if _, err := g.Identify(requestFrom("10.0.0.1:2", "good-now")); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestAReviewOutlivesItsCaller, for no longer than its time: so callers who leave
// at once have no more of them under way than others.
func TestAReviewOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &apiServer{wait: make(chan struct{})}
		g := newTestGate(a)
		for i := range 2 * maxReviewsOne {
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				_, err := g.Identify(requestFrom("10.0.0.1:1", fmt.Sprint("bad-", i)).WithContext(ctx))
				ended <- err
			}()
			synctest.Wait()
			leave()
			if err := <-ended; err == nil || errors.Is(err, ErrBusy) != (i >= maxReviewsOne) {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if tokens, _ := a.asked(); tokens != maxReviewsOne {
			t.Errorf("%d reviews, want %d", tokens, maxReviewsOne)
		}
		<-time.After(reviewTimeout + time.Second) // in the bubble
		synctest.Wait()
		if _, err := g.Identify(requestFrom("10.0.0.1:1", "bad-99").WithContext(canceled())); errors.Is(err, ErrBusy) {
			t.Errorf("after the reviews' time: %v", err)
		}
		close(a.wait)
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestBadTokensForgetNoGoodOne: whoever tries many tokens costs others no review.
func TestBadTokensForgetNoGoodOne(t *testing.T) {
	a := &apiServer{}
	g := newTestGate(a)
	identify := func(token string) {
		t.Helper()
		if _, err := g.Identify(requestFrom("10.0.0.1:1", token)); (err == nil) != strings.HasPrefix(token, "good") {
			t.Fatalf("%s: %v", token, err)
		}
	}
	identify("good")
	for i := range 3 * 4096 {
		identify(fmt.Sprint("bad-", i))
	}
	before, _ := a.asked()
	identify("good")
	if after, _ := a.asked(); after != before {
		t.Error("the good token was reviewed again")
	}
}

// TestAccessKeys: two users who may do different things are never taken for each
// other.
func TestAccessKeys(t *testing.T) {
	users := []User{
		{Name: "u", Groups: []string{"x", "ops"}},
		{Name: "u", Groups: []string{"x ops"}}, {Name: "u", Groups: []string{"ops x"}}, {Name: "u", Groups: []string{"ops]"}},
		{Name: "u", Groups: []string{"x", "ops,Extra:"}}, {Name: "u,Groups:[ops", Groups: []string{}}, {Name: "u", Groups: []string{"x", "ops\x00"}},
		{Name: "u", UID: "1", Groups: []string{"x"}}, {Name: "u1", Groups: []string{"x"}}, {Name: "u", Groups: []string{"x", "1"}},
		{Name: "u", Groups: []string{"x"}, Extra: map[string][]string{"k": {"v1 v2"}}},
		{Name: "u", Groups: []string{"x"}, Extra: map[string][]string{"k": {"v1", "v2"}}},
		{Name: "u", Groups: []string{"x"}, Extra: map[string][]string{"k": {"v1"}, "v2": nil}},
		{Name: "u", Groups: []string{"x"}, Extra: map[string][]string{"k v1": {"v2"}}},
		{Name: "u\xff", Groups: []string{"x"}}, {Name: "u\xfe", Groups: []string{"x"}}, {Name: "u\ufffd", Groups: []string{"x"}},
	}
	a := &apiServer{}
	g := newTestGate(a)
	for round := range 2 {
		for i, u := range users {
			allowed, _, err := g.Authorize(requestFrom("10.0.0.1:1", ""), u)
			if err != nil || allowed != (i == 0) {
				t.Errorf("%+v: %v, %v", u, allowed, err)
			}
		}
		// "pods", and for those who may not "proxy".
		if _, access := a.asked(); access != 2*len(users)-1 {
			t.Errorf("round %d: %d reviews, want %d", round, access, 2*len(users)-1)
		}
	}
}
