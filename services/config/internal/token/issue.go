// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Issue asks the API server for a token (TokenRequest) bound to the pod.
func Issue(ctx context.Context, client kubernetes.Interface, r Request) (Token, error) {
	seconds := int64(r.Expiration / time.Second)
	review, err := client.CoreV1().ServiceAccounts(r.Namespace).CreateToken(ctx, r.ServiceAccount, &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(r.AccountUID)},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         r.Audiences,
			ExpirationSeconds: &seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{
				Kind: "Pod", APIVersion: "v1", Name: r.PodName, UID: types.UID(r.PodUID),
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return Token{}, err
	}
	// The API server may grant another life than asked for, and says so.
	life := r.Expiration
	if granted := review.Spec.ExpirationSeconds; granted != nil {
		life = pod.Seconds(*granted)
	}
	return Token{Token: review.Status.Token, Expires: review.Status.ExpirationTimestamp.Time, Life: life}, nil
}
