package nodeapi

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// desired is a pod as config wants it.
type desired struct {
	pod    *v1.Pod
	source string
	// mirror is the UID of a static pod's mirror, as the API server knows it.
	mirror string
}

// static pods are those the API server did not name.
func (d *desired) static() bool { return d.source != "api" }

func decodeDesired(_ string, value []byte) (*desired, error) {
	m := &configv1.DesiredPod{}
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, err
	}
	d := &desired{pod: &v1.Pod{}, source: m.GetSource()}
	if data := m.GetMirror(); len(data) > 0 {
		mirror := &v1.Pod{}
		if err := mirror.Unmarshal(data); err != nil {
			return nil, fmt.Errorf("mirror: %w", err)
		}
		d.mirror = string(mirror.UID)
	}
	return d, d.pod.Unmarshal(m.GetPod())
}

// reviewer asks config, which holds the node credential; one that is being
// restarted is waited for.
type reviewer struct{ config configv1.ConfigServiceClient }

func (r reviewer) ReviewToken(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	data, err := review.Marshal()
	if err != nil {
		return nil, err
	}
	resp, err := r.config.ReviewToken(ctx, &configv1.ReviewTokenRequest{Review: data}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	answer := &authenticationv1.TokenReview{}
	return answer, answer.Unmarshal(resp.GetReview())
}

func (r reviewer) ReviewAccess(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	data, err := review.Marshal()
	if err != nil {
		return nil, err
	}
	resp, err := r.config.ReviewAccess(ctx, &configv1.ReviewAccessRequest{Review: data}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	answer := &authorizationv1.SubjectAccessReview{}
	return answer, answer.Unmarshal(resp.GetReview())
}
