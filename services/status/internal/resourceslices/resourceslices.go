// SPDX-License-Identifier: Apache-2.0

// Package resourceslices deletes the ResourceSlices of drivers that the node has no more
// (KEP-4381): the scheduler would go on placing pods on their devices.
//
// It owns the end of the node's slices; drivers own the rest. Slices of a driver that is
// there are never touched, so a restart of the node's services costs no driver a new
// publication. (A kubelet deletes all slices of its node at each start.) There is nothing to
// remember: after kill -9 it looks again.
package resourceslices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
)

// API is what is asked of the API server.
type API interface {
	// ResourceSliceDrivers names the drivers that have slices of a node.
	ResourceSliceDrivers(ctx context.Context, node string) ([]string, error)
	// DeleteResourceSlices deletes a driver's slices of a node.
	DeleteResourceSlices(ctx context.Context, node, driver string) error
}

// Back-off of tries (kubelet: the same).
var retries = backoff.Doubling{Least: time.Second, Most: 5 * time.Minute}

// Deps of a sweeper.
type Deps struct {
	API API
	// Node is the name and the UID of the Node; the latter is empty while it does not exist.
	Node func() (name string, uid types.UID)
	// Present names the drivers whose slices stay, sorted; false while that is not known.
	Present func() ([]string, bool)
	Log     *slog.Logger
}

// Sweeper deletes. Look is safe for concurrent use.
type Sweeper struct {
	deps Deps
	wake signal.Signal
	// swept are the drivers that were there at the last look; nil before the first.
	swept []string
}

// New makes a sweeper; Run works.
func New(deps Deps) *Sweeper { return &Sweeper{deps: deps, wake: signal.New()} }

// Look says that the Node, or the drivers, may be others.
func (s *Sweeper) Look() { s.wake.Send() }

// Run works until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	retries.Work(ctx, s.wake, func(ctx context.Context) bool {
		err := s.sweep(ctx)
		if err != nil && ctx.Err() == nil {
			s.deps.Log.Warn("ResourceSlices of drivers that are gone are not deleted", service.KeyError, err.Error())
		}
		return err == nil
	})
	return nil
}

// sweep deletes the slices of drivers that are not there, when there may be some.
func (s *Sweeper) sweep(ctx context.Context) error {
	node, uid := s.deps.Node()
	present, known := s.deps.Present()
	there := func(driver string) bool { return slices.Contains(present, driver) }
	if uid == "" || !known {
		return nil
	}
	if s.swept != nil && !slices.ContainsFunc(s.swept, func(d string) bool { return !there(d) }) {
		s.swept = append([]string{}, present...)
		return nil
	}
	drivers, err := s.deps.API.ResourceSliceDrivers(ctx, node)
	if err != nil && !apierrors.IsNotFound(err) { // an API server without the resource has none
		return fmt.Errorf("list: %w", err)
	}
	var all []error
	for _, d := range drivers {
		if there(d) {
			continue
		}
		if err := s.deps.API.DeleteResourceSlices(ctx, node, d); err != nil {
			all = append(all, fmt.Errorf("driver %s: %w", d, err))
			continue
		}
		s.deps.Log.Info("deleted the ResourceSlices of a DRA driver that is gone", "driver", d)
	}
	if len(all) == 0 {
		s.swept = append([]string{}, present...)
	}
	return errors.Join(all...)
}
