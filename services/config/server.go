// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/objects"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

// session is the way to the API server, while there is one.
type session struct {
	clients atomic.Pointer[cluster.Clients]
	inForce *configuration
}

// server answers the other services.
type server struct {
	configv1.UnimplementedConfigServiceServer
	session *session
	objects *objects.Manager
	tokens  *token.Cache
	metrics *metrics
	now     func() time.Time
	// reviewing bounds the reviews under way.
	reviewing *semaphore.Weighted
}

// Token implements ConfigService.
func (s *server) Token(ctx context.Context, req *configv1.TokenRequest) (*configv1.TokenResponse, error) {
	for field, value := range map[string]string{
		"namespace": req.GetNamespace(), "service_account": req.GetServiceAccount(),
		"pod_name": req.GetPodName(), "pod_uid": req.GetPodUid(),
	} {
		if value == "" {
			return nil, rpc.Invalid.Errorf("%s: required", field)
		}
	}
	expiration := req.GetExpiration().AsDuration()
	if expiration <= 0 {
		expiration = pod.DefaultTokenLife
	}
	t, err := s.tokens.Get(ctx, token.Request{
		Namespace: req.GetNamespace(), ServiceAccount: req.GetServiceAccount(), Audiences: req.GetAudiences(),
		Expiration: expiration, PodName: req.GetPodName(), PodUID: req.GetPodUid(),
		AccountUID: req.GetAccountUid(),
	})
	if err != nil {
		s.metrics.tokens.WithLabelValues("error").Inc()
		return nil, kinded(err)
	}
	s.metrics.tokens.WithLabelValues("ok").Inc()
	return &configv1.TokenResponse{Token: t.Token, ExpiresAt: timestamppb.New(t.Expires)}, nil
}

// ServiceAccount implements ConfigService.
func (s *server) ServiceAccount(ctx context.Context, req *configv1.ServiceAccountRequest) (*configv1.ServiceAccountResponse, error) {
	if req.GetNamespace() == "" || req.GetName() == "" {
		return nil, rpc.Invalid.Errorf("namespace and name: required")
	}
	client, err := s.session.client()
	if err != nil {
		return nil, err
	}
	account, err := client.CoreV1().ServiceAccounts(req.GetNamespace()).Get(ctx, req.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, kinded(fmt.Errorf("service account %s/%s: %w", req.GetNamespace(), req.GetName(), err))
	}
	return &configv1.ServiceAccountResponse{Uid: string(account.UID), Annotations: account.Annotations}, nil
}

// Node implements ConfigService.
func (s *server) Node(ctx context.Context, _ *configv1.NodeRequest) (*configv1.NodeResponse, error) {
	client, err := s.session.client()
	if err != nil {
		return nil, err
	}
	current, _ := s.session.inForce.get()
	node, err := client.CoreV1().Nodes().Get(ctx, current.Node.Name, metav1.GetOptions{})
	if err != nil {
		return nil, kinded(fmt.Errorf("node %s: %w", current.Node.Name, err))
	}
	raw, err := node.Marshal()
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", current.Node.Name, err)
	}
	return &configv1.NodeResponse{Node: raw}, nil
}

// issue asks the API server for a token.
func (s *session) issue(ctx context.Context, r token.Request) (token.Token, error) {
	client, err := s.client()
	if err != nil {
		return token.Token{}, err
	}
	return token.Issue(ctx, client, r)
}

// client is the API server's; the error says why there is none.
func (s *session) client() (*cluster.Clients, error) {
	if clients := s.clients.Load(); clients != nil {
		return clients, nil
	}
	if current, _ := s.inForce.get(); current.Standalone() {
		return nil, rpc.Unavailable.Errorf("standalone: there is no API server")
	}
	return nil, rpc.Unavailable.Errorf("no credentials for the API server yet")
}

// kinded gives an error of the API server the kind a caller can act on. What
// is no answer of it is "not now".
func kinded(err error) error {
	if rpc.KindOf(err) != rpc.Internal {
		return err
	}
	kind := rpc.Unavailable
	switch _, answered := apianswer.Of(err); {
	case !answered:
	case apierrors.IsNotFound(err):
		kind = rpc.NotFound
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		kind = rpc.Denied
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		kind = rpc.Invalid
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		kind = rpc.Conflict
	}
	return kind.Errorf("API server: %w", err)
}
