// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/test/fakeapi"
)

// byHand is a Node as somebody makes it with kubectl.
func byHand(uid string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID(uid), CreationTimestamp: metav1.Now()}}
}

// served checks that the Node at the API server is kept, and that the node goes by it.
func (r *rig) served(uid types.UID) {
	r.t.Helper()
	n := r.cluster.Node("n1")
	if n.UID != uid || r.ready() != v1.ConditionTrue || len(n.Status.Capacity) == 0 || len(n.Status.Addresses) == 0 || n.Labels[v1.LabelOSStable] != "linux" {
		r.t.Errorf("the Node is not kept: UID %s, labels %v, %+v", n.UID, n.Labels, n.Status)
	}
	if state := r.published(); state.UID != uid || state.Err != "" {
		r.t.Errorf("state %+v", state)
	}
}

// TestMadeAgain: a Node that was deleted and that somebody makes again is served, whether
// or not config lists it.
func TestMadeAgain(t *testing.T) {
	for name, lists := range map[string]bool{"listed": true, "not listed": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.pass(time.Minute)
				r.cluster.PutNode("n1", nil)
				r.pass(10 * time.Minute)
				if r.published().UID != "" {
					t.Errorf("state %+v", r.published())
				}
				n := r.cluster.PutNode("n1", byHand("by-hand"))
				if lists {
					r.change(func(f *Facts) { f.Node = n })
				}
				r.pass(15 * time.Second)
				r.served("by-hand")
				r.pass(30 * time.Minute)
				r.served("by-hand")
				if n := len(r.cluster.Requests("create", "")); n != 1 {
					t.Errorf("registered %d times", n)
				}
			})
		})
	}
}

// TestMadeAgainAtOnce: no write hears that the Node was deleted.
func TestMadeAgainAtOnce(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		for _, uid := range []string{"second", "third"} {
			n := r.cluster.PutNode("n1", byHand(uid))
			r.change(func(f *Facts) { f.Node = n })
			r.pass(3 * calm)
			r.served(n.UID)
		}
	})
}

// TestMadeAgainBeforeAWrite: the answer to a write shows another Node, before config lists it.
func TestMadeAgainBeforeAWrite(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		r.cluster.PutNode("n1", byHand("by-hand"))
		r.change(func(f *Facts) { f.Input.Port = 10251 }) // something to write
		r.pass(3 * calm)
		r.served("by-hand")
	})
}

// TestMadeAgainByHandOnly: the same where the node does not register itself.
func TestMadeAgainByHandOnly(t *testing.T) {
	run(t, func(r *rig) {
		r.change(func(f *Facts) { f.Register = false })
		r.kill()
		r.cluster.PutNode("n1", byHand("first"))
		r.start()
		r.pass(time.Minute)
		r.served("first")
		r.cluster.PutNode("n1", nil)
		r.pass(10 * time.Minute)
		r.cluster.PutNode("n1", byHand("second"))
		r.pass(15 * time.Second)
		r.served("second")
	})
}

// TestListedLate: what config lists may be of before: the Node is asked for once a period, and
// kept.
func TestListedLate(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		uid := r.cluster.Node("n1").UID
		r.change(func(f *Facts) { f.Node = byHand("former") })
		for range 60 {
			r.pass(time.Second)
			r.wake.Send()
		}
		if n := len(r.cluster.Requests("get", "nodes")); n < 5 || n > 7 {
			t.Errorf("asked for %d times in a minute", n)
		}
		r.served(uid)
	})
}

// TestAskedForWhileGone: once a period, and sooner where the API server does not answer.
func TestAskedForWhileGone(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		r.cluster.PutNode("n1", nil)
		r.pass(10 * time.Minute)
		before := len(r.cluster.Requests("get", "nodes"))
		r.pass(10 * time.Minute)
		if n := len(r.cluster.Requests("get", "nodes")) - before; n < 55 || n > 61 {
			t.Errorf("asked for %d times in ten minutes", n)
		}
		r.cluster.Hook(func(context.Context, fakeapi.Request) error { return apierrors.NewInternalError(errGone) })
		r.pass(time.Minute)
		r.cluster.PutNode("n1", byHand("by-hand"))
		r.cluster.Hook(nil)
		r.pass(15 * time.Second)
		r.served("by-hand")
	})
}
