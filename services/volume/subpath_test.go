// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/rpc"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/volumetest"
)

func partOf(uid string, index int) *volumev1.SubpathRequest {
	return &volumev1.SubpathRequest{Uid: uid, Volume: "e", Container: "c", Index: int32(index), SubPath: "part"}
}

// roundTrip takes a pod through its life: every pass that was due before has begun when
// it is over.
func (r *rig) roundTrip(uid string) {
	r.Helper()
	r.declare(of(r, uid, `- {name: e, emptyDir: {}}`))
	r.ready(uid)
	r.withdraw(uid)
	r.gone(uid)
}

// TestNoPartIsBoundWhileVolumesGo: a part that takes long to be bound is waited for, and
// after it none is bound of a pod that leaves, also if it was asked for before.
func TestNoPartIsBoundWhileVolumesGo(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	binding, bind := make(chan struct{}), make(chan struct{})
	var inside atomic.Bool
	r.start(func(d *volume.Deps) {
		d.Host = stuck{
			Host: setup.NewHost(r.root),
			binds: func(index int) {
				if index != 0 {
					t.Errorf("part %d is bound", index)
					return
				}
				inside.Store(true)
				close(binding)
				<-bind
				inside.Store(false)
			},
			removal: func(uid types.UID) error {
				if uid == "u" && inside.Load() {
					t.Error("volumes are removed while a part of one is being bound")
				}
				return nil
			},
		}
	})
	r.declare(of(t, "u", `- {name: e, hostPath: {path: `+t.TempDir()+`}}`))
	r.ready("u")
	var calls sync.WaitGroup
	calls.Go(func() {
		if _, err := r.client.Subpath(r.Context(), partOf("u", 0)); err != nil {
			t.Errorf("a part that was asked for in time: %v", err)
		}
	})
	<-binding
	calls.Go(func() {
		if _, err := r.client.Subpath(r.Context(), partOf("u", 2)); !rpc.Is(err, rpc.Unavailable) {
			t.Errorf("a part that waited for its turn until the pod left: %v", err)
		}
	})
	r.roundTrip("before") // on the same connection: the service knows the call by now
	r.withdraw("u")
	if _, err := r.client.Subpath(r.Context(), partOf("u", 1)); !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("a part of a pod that leaves: %v", err)
	}
	r.roundTrip("other")
	close(bind)
	calls.Wait()
	r.gone("u")
	if left := volumetest.Mounts(t, r.root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// TestPartsAreBoundOneAtATime: a call that was given up while it waited for another one
// binds nothing.
func TestPartsAreBoundOneAtATime(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	begun, bind := make(chan struct{}, 3), make(chan struct{})
	var mu sync.Mutex
	var order []int
	r.start(func(d *volume.Deps) {
		d.Host = stuck{Host: setup.NewHost(r.root), binds: func(index int) {
			mu.Lock()
			order = append(order, index)
			mu.Unlock()
			begun <- struct{}{}
			<-bind
		}}
	})
	r.declare(of(t, "u", `- {name: e, emptyDir: {}}`))
	r.ready("u")
	var calls sync.WaitGroup
	call := func(index int) {
		if _, err := r.client.Subpath(r.Context(), partOf("u", index)); err != nil {
			t.Errorf("part %d: %v", index, err)
		}
	}
	calls.Go(func() { call(0) })
	<-begun
	ctx, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := r.client.Subpath(ctx, partOf("u", 1)); !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("a call that was given up: %v", err)
	}
	r.roundTrip("other") // on the same connection: the service knows it by now
	close(bind)
	calls.Wait()
	call(2)
	if !slices.Equal(order, []int{0, 2}) {
		t.Errorf("bound in the order %v", order)
	}
}
