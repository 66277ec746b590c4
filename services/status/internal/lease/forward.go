// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
)

// forward is a clock that never shows less than the Lease did. The node controller
// takes a Lease for renewed when its time is later than before: a node whose clock
// was set back would be dead to it until that time has come again.
type forward struct {
	clock.Clock

	mu    sync.Mutex
	shown time.Time
}

// Now is later than any time it has shown, and than those of the Leases it saw.
func (f *forward) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.Clock.Now().Round(0) // a Lease has the wall clock's time
	if least := f.shown.Add(time.Microsecond); now.Before(least) {
		now = least
	}
	f.shown = now
	return now
}

func (f *forward) saw(lease *coordinationv1.Lease) {
	if lease == nil || lease.Spec.RenewTime == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if lease.Spec.RenewTime.After(f.shown) {
		f.shown = lease.Spec.RenewTime.Time
	}
}

// watched is a client whose Leases the clock sees when they are read.
type watched struct {
	kubernetes.Interface
	clock *forward
}

func (w watched) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return group{w.Interface.CoordinationV1(), w.clock}
}

type group struct {
	coordinationclient.CoordinationV1Interface
	clock *forward
}

func (g group) Leases(namespace string) coordinationclient.LeaseInterface {
	return leases{g.CoordinationV1Interface.Leases(namespace), g.clock}
}

type leases struct {
	coordinationclient.LeaseInterface
	clock *forward
}

func (l leases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Get(ctx, name, o)
	if err == nil {
		l.clock.saw(lease)
	}
	return lease, err
}
