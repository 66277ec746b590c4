package token

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// lag is how long the node authorizer may take to learn of a pod that the node
	// was told of: until then "forbidden" is not yet an answer.
	lag   = 2 * time.Second
	first = 10 * time.Millisecond
)

// Patient asks again, ever slower, while the API server may not know the pod.
func Patient(issue func(context.Context, Request) (Token, error)) func(context.Context, Request) (Token, error) {
	return func(ctx context.Context, r Request) (Token, error) {
		began := time.Now()
		for wait := first; ; wait *= 2 {
			t, err := issue(ctx, r)
			if !apierrors.IsForbidden(err) || time.Since(began)+wait > lag {
				return t, err
			}
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return t, err
			}
		}
	}
}
