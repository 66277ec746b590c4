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
)

// reviewBackoff is how a review is tried again when the API server fails in a
// way that passes (apiserver's default for delegated reviews: five attempts).
var reviewBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// passing tells the failures that are worth another attempt: a connection that
// broke, errors of the server's own, and whatever says when to come back. One
// that cannot be reached at all is told at once.
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
func (s *Service) ReviewToken(ctx context.Context, req *configv1.ReviewTokenRequest) (*configv1.ReviewTokenResponse, error) {
	review := &authenticationv1.TokenReview{}
	if err := review.Unmarshal(req.GetReview()); err != nil {
		return nil, rpc.Invalid.Errorf("review: %w", err)
	}
	client, err := s.apiClient()
	if err != nil {
		return nil, err
	}
	var answer *authenticationv1.TokenReview
	err = reviewed(ctx, func() (err error) {
		defer s.metrics.authn.observe(s.now, &err)()
		answer, err = client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	data, err := answer.Marshal()
	return &configv1.ReviewTokenResponse{Review: data}, err
}

// ReviewAccess implements ConfigService.
func (s *Service) ReviewAccess(ctx context.Context, req *configv1.ReviewAccessRequest) (*configv1.ReviewAccessResponse, error) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := review.Unmarshal(req.GetReview()); err != nil {
		return nil, rpc.Invalid.Errorf("review: %w", err)
	}
	client, err := s.apiClient()
	if err != nil {
		return nil, err
	}
	var answer *authorizationv1.SubjectAccessReview
	err = reviewed(ctx, func() (err error) {
		defer s.metrics.authz.observe(s.now, &err)()
		answer, err = client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	data, err := answer.Marshal()
	return &configv1.ReviewAccessResponse{Review: data}, err
}
