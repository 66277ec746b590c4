// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// TestReviewsAreTriedAgain: for failures that pass, five times within four
// seconds; all others are told at once.
func TestReviewsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			err      error
			attempts int
			kind     rpc.Kind
		}{
			"internal error":     {apierrors.NewInternalError(errors.New("boom")), 5, rpc.Unavailable},
			"too many requests":  {apierrors.NewTooManyRequests("later", 1), 5, rpc.Unavailable},
			"server timeout":     {apierrors.NewTimeoutError("slow", 0), 5, rpc.Unavailable},
			"connection reset":   {syscall.ECONNRESET, 5, rpc.Unavailable},
			"connection refused": {syscall.ECONNREFUSED, 1, rpc.Unavailable},
			"unauthorized":       {apierrors.NewUnauthorized("who"), 1, rpc.Denied},
			"a proxy's 403":      {apierrors.NewGenericServerResponse(http.StatusForbidden, "post", schema.GroupResource{}, "", "blocked", 0, true), 1, rpc.Unavailable},
			"forbidden":          {apierrors.NewForbidden(schema.GroupResource{Resource: "tokenreviews"}, "", errors.New("no")), 1, rpc.Denied},
		} {
			attempts, began := 0, time.Now()
			err := reviewed(t.Context(), func() error { attempts++; return test.err })
			if attempts != test.attempts || !rpc.Is(err, test.kind) || !errors.Is(err, test.err) {
				t.Errorf("%s: %d attempts, %v", name, attempts, err)
			}
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("%s took %s", name, took)
			}
		}
		attempts := 0
		if err := reviewed(t.Context(), func() error {
			if attempts++; attempts < 3 {
				return syscall.ECONNRESET
			}
			return nil
		}); err != nil || attempts != 3 {
			t.Errorf("%d attempts, %v", attempts, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := reviewed(ctx, func() error { return syscall.ECONNRESET }); err == nil {
			t.Error("no error when there was no time")
		}
	})
}
