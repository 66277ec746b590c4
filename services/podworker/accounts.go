// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/credprovider"
)

// accounts asks config about service accounts (credprovider.Accounts).
type accounts struct{ config configv1.ConfigServiceClient }

// Account implements credprovider.Accounts.
func (a accounts) Account(ctx context.Context, namespace, name string) (uid string, annotations map[string]string, err error) {
	resp, err := a.config.ServiceAccount(ctx, &configv1.ServiceAccountRequest{Namespace: namespace, Name: name})
	return resp.GetUid(), resp.GetAnnotations(), err
}

// Token implements credprovider.Accounts.
func (a accounts) Token(ctx context.Context, who credprovider.Subject, accountUID, audience string) (string, error) {
	resp, err := a.config.Token(ctx, &configv1.TokenRequest{
		Namespace: who.Namespace, ServiceAccount: who.Account, Audiences: []string{audience},
		PodName: who.Pod, PodUid: who.PodUID, AccountUid: accountUID,
	})
	return resp.GetToken(), err
}
