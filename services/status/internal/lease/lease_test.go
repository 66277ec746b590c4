// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
)

// rig runs the loop on synthetic time.
func run(t *testing.T, client *fake.Clientset, uid *atomic.Value, settings func() (Settings, error), test func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := New(Deps{
			Settings: settings, Log: slog.New(slog.DiscardHandler),
			NodeUID: func() types.UID { return uid.Load().(types.UID) },
		})
		go func() {
			if err := l.Run(ctx); err != nil {
				t.Errorf("lease: %v", err)
			}
		}()
		test()
		cancel()
		synctest.Wait()
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func get(t *testing.T, client *fake.Clientset) *coordinationv1.Lease {
	t.Helper()
	l, err := client.CoordinationV1().Leases("kube-node-lease").Get(context.Background(), "n1", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return l
}

func node(uid types.UID) *atomic.Value {
	v := &atomic.Value{}
	v.Store(uid)
	return v
}

func TestLease(t *testing.T) {
	client, uid := fake.NewClientset(), node("")
	settings := Settings{Node: "n1", Duration: 40 * time.Second, Client: client, Generation: 1}
	run(t, client, uid, func() (Settings, error) { return settings, nil }, func() {
		pass(5 * time.Second)
		if get(t, client) != nil {
			t.Error("a Lease without an owner")
		}
		uid.Store(types.UID("node-uid"))
		pass(2 * time.Second)
		l := get(t, client)
		if l == nil {
			t.Fatal("no Lease although the Node is known")
		}
		if *l.Spec.LeaseDurationSeconds != 40 || *l.Spec.HolderIdentity != "n1" || l.OwnerReferences[0].UID != "node-uid" {
			t.Errorf("%+v", l)
		}
		for range 10 {
			before := get(t, client).Spec.RenewTime.Time
			pass(10500 * time.Millisecond) // 10 s and 4 % of jitter
			if !get(t, client).Spec.RenewTime.After(before) {
				t.Error("not renewed within a quarter of its duration")
			}
		}
	})
}

// TestOwned: an existing Lease is renewed at once, whatever is known of the Node.
func TestOwned(t *testing.T) {
	client := fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-node-lease", Name: "n1", ResourceVersion: "1", OwnerReferences: []metav1.OwnerReference{{UID: "node-uid"}},
	}})
	run(t, client, node(""), func() (Settings, error) {
		return Settings{Node: "n1", Duration: 40 * time.Second, Client: client}, nil
	}, func() {
		pass(0)
		if l := get(t, client); l.Spec.RenewTime == nil || l.OwnerReferences[0].UID != "node-uid" {
			t.Errorf("%+v", l)
		}
	})
}

// TestOtherClient: new credentials are taken up, and the old loop ends.
func TestOtherClient(t *testing.T) {
	first, second := fake.NewClientset(), fake.NewClientset()
	var settings atomic.Pointer[Settings]
	failure := errors.New("no kubeconfig")
	run(t, first, node("u"), func() (Settings, error) {
		if s := settings.Load(); s != nil {
			return *s, nil
		}
		return Settings{}, failure
	}, func() {
		pass(time.Minute)
		settings.Store(&Settings{Node: "n1", Duration: 40 * time.Second, Client: first, Generation: 1})
		pass(2 * time.Second)
		if get(t, first) == nil {
			t.Fatal("no Lease")
		}
		settings.Store(&Settings{Node: "n1", Duration: 40 * time.Second, Client: second, Generation: 2})
		pass(settled + time.Second)
		if get(t, second) == nil {
			t.Fatal("no Lease by the new client")
		}
		before := len(first.Actions())
		pass(time.Minute)
		if len(first.Actions()) != before {
			t.Error("the old client is still used")
		}
	})
}

// TestTheClockIsSetBack: a renewal is later than the last one, also after a
// restart, or the node controller does not take it for one.
func TestTheClockIsSetBack(t *testing.T) {
	c := testingclock.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	client := fake.NewClientset()
	var last time.Time
	for range 2 { // lives
		f := &forward{Clock: c}
		leases := watched{client, f}.CoordinationV1().Leases("kube-node-lease")
		if _, err := leases.Get(t.Context(), "n1", metav1.GetOptions{}); err != nil && !last.IsZero() {
			t.Fatal(err)
		}
		for range 3 {
			now := f.Now()
			if !now.After(last) {
				t.Errorf("%s is not after %s", now, last)
			}
			last = now
			c.SetTime(c.Now().Add(-time.Hour))
		}
		_ = client.Tracker().Add(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: last}},
		})
	}
}
