// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sextant-node/sextant/pkg/backoff"
)

// lag is how long the API server's node authorizer and its NodeRestriction plugin,
// which watch pods as a node does, may take to learn of one that the node was told of:
// until then "forbidden", and that there is no such pod, are not yet answers.
const lag = 2 * time.Second

var again = backoff.Doubling{Least: 10 * time.Millisecond, Most: lag}

// Patient asks again, ever slower, while the API server may not know the pod.
func Patient(issue func(context.Context, Request) (Token, error)) func(context.Context, Request) (Token, error) {
	return func(ctx context.Context, r Request) (Token, error) {
		began := time.Now()
		for failures := 1; ; failures++ {
			t, err := issue(ctx, r)
			if !lagging(err) || time.Since(began)+again.After(failures) > lag || !again.Wait(ctx, failures) {
				return t, err
			}
		}
	}
}

// lagging reports whether an error may be of an API server that does not know the
// pod yet.
func lagging(err error) bool {
	if apierrors.IsForbidden(err) {
		return true
	}
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && (details.Kind == "pod" || details.Kind == "pods")
}
