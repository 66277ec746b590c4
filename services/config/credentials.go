// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/identity"
)

// publishCredential serves the credential to the one who writes with it.
func (f *feeds) publishCredential(held *identity.Held, log *slog.Logger) {
	ctx := context.Background()
	if held == nil {
		f.credential.Delete(ctx, nodeItem)
	} else {
		message := &configv1.Credential{Kubeconfig: held.Kubeconfig, ExpiresAt: wire.Time(held.Expires)}
		if _, err := f.credential.Set(ctx, nodeItem, message); err != nil {
			log.Error("credential not published", service.KeyError, err.Error())
		}
	}
	f.credential.SetComplete(ctx, true)
}

// timeLeft is that of the client certificate, in seconds.
func timeLeft(held *identity.Held, now time.Time) float64 {
	if held == nil || held.Expires.IsZero() {
		return math.Inf(1)
	}
	return held.Expires.Sub(now).Seconds()
}
