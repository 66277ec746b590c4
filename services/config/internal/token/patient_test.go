// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPatient(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "default", errors.New("no relationship found"))
	noPod := apierrors.NewNotFound(schema.GroupResource{Resource: "pod"}, "p") // as a lister words it
	noAccount := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "default")
	for name, c := range map[string]struct {
		refused time.Duration
		with    error
		ok      bool
		took    time.Duration
	}{
		"granted at once":        {took: 0, ok: true},
		"known a moment later":   {refused: 300 * time.Millisecond, with: forbidden, ok: true, took: 310 * time.Millisecond},
		"forbidden":              {refused: time.Hour, with: forbidden, took: 1270 * time.Millisecond},
		"pod unknown at first":   {refused: 5 * time.Millisecond, with: fmt.Errorf("token: %w", noPod), ok: true, took: 10 * time.Millisecond},
		"pod deleted":            {refused: time.Hour, with: noPod, took: 1270 * time.Millisecond},
		"no account":             {refused: time.Hour, with: noAccount},
		"another answer is told": {refused: time.Hour, with: errors.New("invalid")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, err := Patient(func(context.Context, Request) (Token, error) {
					if time.Since(began) < c.refused {
						return Token{}, c.with
					}
					return Token{Token: "t"}, nil
				})(t.Context(), Request{})
				if took := time.Since(began); took != c.took || (err == nil) != c.ok || (got.Token == "t") != c.ok || !c.ok && !errors.Is(err, c.with) {
					t.Errorf("%v, %v after %s", got, err, took)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := Patient(func(context.Context, Request) (Token, error) { return Token{}, forbidden })(ctx, Request{})
		if !apierrors.IsForbidden(err) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("a caller that left: %v after %s", err, time.Since(began))
		}
	})
}
