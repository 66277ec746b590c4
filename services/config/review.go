// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
)

// Reviews are made for any caller that reaches the node's port.
const (
	// maxReviews is how many may be under way; more are refused.
	maxReviews = 64
	// maxReview bounds one, in bytes. A token has 16 KiB at most, and a user with a
	// thousand groups fits.
	maxReview = 64 << 10
)

// reviewer is the client for a review, once there is room for one more; done makes
// room again.
func (s *server) reviewer(review []byte) (client *cluster.Clients, done func(), err error) {
	if len(review) > maxReview {
		return nil, nil, rpc.Invalid.Errorf("review: %d bytes, at most %d are reviewed", len(review), maxReview)
	}
	if client, err = s.session.client(); err != nil {
		return nil, nil, err
	}
	if !s.reviewing.TryAcquire(1) {
		return nil, nil, rpc.Unavailable.Errorf("%d reviews are under way already", maxReviews)
	}
	return client, func() { s.reviewing.Release(1) }, nil
}

// reviewBackoff is how a review is tried again when the API server fails in a
// way that passes (apiserver's default for delegated reviews: five attempts).
var reviewBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// passing tells the failures that are worth another attempt: a connection that
// broke, errors of the server's own, and whatever says when to come back. One
// that cannot be reached at all is reported at once.
func passing(err error) bool {
	_, later := apierrors.SuggestsClientDelay(err)
	return later || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// reviewed makes a review, more than once if that may help. The error is the
// API server's last word.
func reviewed(ctx context.Context, review func() error) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, reviewBackoff, func(context.Context) (done bool, err error) {
		last = review()
		if last == nil || passing(last) {
			return last == nil, nil
		}
		return false, last
	})
	if err == nil {
		return nil
	}
	if last == nil {
		last = errors.Join(err, context.Cause(ctx)) // there was no time for a first attempt
	}
	return kinded(last)
}

// ReviewToken implements ConfigService.
func (s *server) ReviewToken(ctx context.Context, req *configv1.ReviewTokenRequest) (*configv1.ReviewTokenResponse, error) {
	client, done, err := s.reviewer(req.GetReview())
	if err != nil {
		return nil, err
	}
	defer done()
	review := &authenticationv1.TokenReview{}
	if err := review.Unmarshal(req.GetReview()); err != nil {
		return nil, rpc.Invalid.Errorf("review: %w", err)
	}
	var answer *authenticationv1.TokenReview
	err = reviewed(ctx, func() (err error) {
		defer s.metrics.authn.observe(s.now, &err)()
		answer, err = client.Reviews.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	data, err := answer.Marshal()
	return &configv1.ReviewTokenResponse{Review: data}, err
}

// ReviewAccess implements ConfigService.
func (s *server) ReviewAccess(ctx context.Context, req *configv1.ReviewAccessRequest) (*configv1.ReviewAccessResponse, error) {
	client, done, err := s.reviewer(req.GetReview())
	if err != nil {
		return nil, err
	}
	defer done()
	review := &authorizationv1.SubjectAccessReview{}
	if err := review.Unmarshal(req.GetReview()); err != nil {
		return nil, rpc.Invalid.Errorf("review: %w", err)
	}
	var answer *authorizationv1.SubjectAccessReview
	err = reviewed(ctx, func() (err error) {
		defer s.metrics.authz.observe(s.now, &err)()
		answer, err = client.Reviews.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	data, err := answer.Marshal()
	return &configv1.ReviewAccessResponse{Review: data}, err
}
