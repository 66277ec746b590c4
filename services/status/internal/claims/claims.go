// SPDX-License-Identifier: Apache-2.0

// Package claims writes into the status of claims how far the expansion of their
// volumes has come on this node (KEP-1790).
//
// It owns of a claim's status the storage entries of capacity and
// allocatedResourceStatuses and the conditions about resizing, while it is the
// node's turn: the claim's version goes with what follows from it, so that it never
// goes over a word of the controller. What is to be written is volume's to say; it
// says so for as long as the claim does not, so there is nothing to remember: after
// kill -9 it is written again.
package claims

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// API is what is asked of the API server.
type API interface {
	// PatchClaimStatus is a strategic merge patch.
	PatchClaimStatus(ctx context.Context, namespace, name string, body []byte) error
}

// Back-off of tries.
var retries = backoff.Doubling{Least: 100 * time.Millisecond, Most: 10 * time.Second}

// Deps of a writer.
type Deps struct {
	API API
	// Wanted is what claims are to say and do not say yet.
	Wanted func() []*volumev1.ClaimExpansion
	Log    *slog.Logger
}

// Writer writes. Look is safe for concurrent use.
type Writer struct {
	deps  Deps
	wake  signal.Signal
	wrote map[string]string // by claim, what was sent last
}

// New makes a writer; Run works.
func New(deps Deps) *Writer {
	return &Writer{deps: deps, wake: signal.New(), wrote: map[string]string{}}
}

// Look says that there may be something to write.
func (w *Writer) Look() {
	w.wake.Send()
}

// Run works until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	retries.Work(ctx, w.wake, w.write)
	return nil
}

// write sends what has not been sent, and reports whether nothing is left to send.
func (w *Writer) write(ctx context.Context) (whole bool) {
	whole = true
	wrote := map[string]string{}
	for _, item := range w.deps.Wanted() {
		key := item.GetNamespace() + "/" + item.GetName()
		text := item.String()
		if w.wrote[key] == text {
			wrote[key] = text
			continue
		}
		body, err := Body(item, time.Now())
		if err == nil {
			err = w.deps.API.PatchClaimStatus(ctx, item.GetNamespace(), item.GetName(), body)
		}
		switch {
		case err == nil, moved(err):
			// A claim that has changed meanwhile is judged again, by volume.
			wrote[key] = text
		case ctx.Err() == nil:
			whole = false
			w.deps.Log.Warn("expansion of a volume not told", "claim", key, service.KeyError, err.Error())
		}
	}
	w.wrote = wrote
	return whole
}

// moved reports whether the API server answered that the claim is gone or has changed.
func moved(err error) bool {
	_, answered := apianswer.Of(err)
	return answered && (apierrors.IsNotFound(err) || apierrors.IsConflict(err))
}

// resizing are the conditions that end with the expansion.
var resizing = []v1.PersistentVolumeClaimConditionType{
	v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
	v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
}

// Body is the patch of a claim's status: a strategic merge, in which null and
// $patch take away what may be there.
func Body(item *volumev1.ClaimExpansion, now time.Time) ([]byte, error) {
	meta := map[string]any{"uid": item.GetUid()}
	status := map[string]any{}
	state := func(s any) { status["allocatedResourceStatuses"] = map[string]any{string(v1.ResourceStorage): s} }
	failed := func() {
		status["conditions"] = []any{v1.PersistentVolumeClaimCondition{
			Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
			Message: "failed to expand pvc with " + item.GetError(),
		}}
	}
	switch item.GetState() {
	case volumev1.ExpansionState_EXPANSION_STATE_IN_PROGRESS:
		meta["resourceVersion"] = item.GetResourceVersion()
		state(v1.PersistentVolumeClaimNodeResizeInProgress)
	case volumev1.ExpansionState_EXPANSION_STATE_DONE:
		meta["resourceVersion"] = item.GetResourceVersion()
		state(nil)
		status["capacity"] = map[string]any{string(v1.ResourceStorage): item.GetSize()}
		var gone []any
		for _, kind := range resizing {
			gone = append(gone, map[string]any{"$patch": "delete", "type": kind})
		}
		status["conditions"] = gone
	case volumev1.ExpansionState_EXPANSION_STATE_FAILED:
		failed()
	case volumev1.ExpansionState_EXPANSION_STATE_INFEASIBLE:
		state(v1.PersistentVolumeClaimNodeResizeInfeasible)
		failed()
	}
	return json.Marshal(map[string]any{"metadata": meta, "status": status})
}
