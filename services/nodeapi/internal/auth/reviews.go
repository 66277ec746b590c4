// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/fair"
)

// ErrBusy says that a caller was not reviewed because too many wait for the API server.
var ErrBusy = errors.New("too many requests wait for a review")

// How many reviews of a kind are under way at a time, and for callers at one address. Each
// holds a call of config for up to reviewTimeout.
const (
	maxReviews    = 64
	maxReviewsOne = 16
)

// reviewTimeout bounds how long one review may hold a request up, retries of
// config included (apiserver's limit for delegated reviews).
const reviewTimeout = 10 * time.Second

// reviews makes reviews of one kind, one at a time for each key.
type reviews[V any] struct {
	flights singleflight.Group
	share   *fair.Share
}

func newReviews[V any]() *reviews[V] {
	return &reviews[V]{share: fair.New(maxReviews, maxReviewsOne)}
}

type originKey struct{}

// withOrigin adds the address of a caller, which ask needs.
func withOrigin(r *http.Request) context.Context {
	return context.WithValue(r.Context(), originKey{}, fair.Origin(r.RemoteAddr))
}

// ask makes the review of a key. It goes on after its caller has left.
func (a *reviews[V]) ask(ctx context.Context, key string, review func(context.Context) (V, error)) (V, error) {
	flight := a.flights.DoChan(key, func() (any, error) {
		from, _ := ctx.Value(originKey{}).(netip.Prefix)
		giveBack, ok := a.share.Take(from, 1)
		if !ok {
			return nil, ErrBusy
		}
		defer giveBack()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		return review(ctx)
	})
	select {
	case answer := <-flight:
		v, _ := answer.Val.(V)
		return v, answer.Err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// Reviewer asks the API server, through config.
type Reviewer interface {
	ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	ReviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
}

// NewReviewer has config, which holds the node credential, ask the API server. It waits for
// a config that restarts.
func NewReviewer(config configv1.ConfigServiceClient) Reviewer { return reviewer{config} }

type reviewer struct{ config configv1.ConfigServiceClient }

// ReviewToken implements Reviewer.
func (r reviewer) ReviewToken(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	answer := &authenticationv1.TokenReview{}
	return answer, exchange(review, answer, func(data []byte) ([]byte, error) {
		resp, err := r.config.ReviewToken(ctx, &configv1.ReviewTokenRequest{Review: data}, grpc.WaitForReady(true))
		return resp.GetReview(), err
	})
}

// ReviewAccess implements Reviewer.
func (r reviewer) ReviewAccess(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	answer := &authorizationv1.SubjectAccessReview{}
	return answer, exchange(review, answer, func(data []byte) ([]byte, error) {
		resp, err := r.config.ReviewAccess(ctx, &configv1.ReviewAccessRequest{Review: data}, grpc.WaitForReady(true))
		return resp.GetReview(), err
	})
}

func exchange(review interface{ Marshal() ([]byte, error) }, answer interface{ Unmarshal([]byte) error }, ask func([]byte) ([]byte, error)) error {
	data, err := review.Marshal()
	if err != nil {
		return err
	}
	if data, err = ask(data); err != nil {
		return err
	}
	return answer.Unmarshal(data)
}
