// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
)

// mood is how the driver answers, and how many rounds there have been.
type mood struct {
	count atomic.Int64

	mu      sync.Mutex
	refuses bool
	hung    chan struct{} // closed when it goes on; nil: it does not hang
}

func (m *mood) rounds() int { return int(m.count.Load()) }

// prepare is the driver's: it refuses, or does not answer for a while.
func (m *mood) prepare(ctx context.Context, _ *drav1.Claim) error {
	m.mu.Lock()
	refuses, hung := m.refuses, m.hung
	m.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if refuses {
		return errors.New("the driver refuses for a while")
	}
	return nil
}

// refuse has the driver refuse every claim, until over.
func (m *mood) refuse() (over func()) {
	set := func(is bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.refuses = is
	}
	set(true)
	return func() { set(false) }
}

// hang has the driver not answer, until over.
func (m *mood) hang() (over func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	hung := make(chan struct{})
	m.hung = hung
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.hung = nil
		close(hung)
	}
}

// trouble is what befalls a plugin or the driver for some rounds.
type trouble struct {
	what string
	end  func()
	left int
}

// troubles are those at a time, at most one of each plugin and of the driver.
type troubles struct {
	*crowd
	now map[string]*trouble
}

// pass lets a round pass: some troubles end, and some begin. It returns what there is.
func (t *troubles) pass(random *rand.Rand) (what string) {
	for _, of := range []string{gpu, nic, "driver"} {
		now := t.now[of]
		switch {
		case now == nil && random.IntN(4) == 0:
			now = t.begin(of, random)
			t.now[of] = now
		case now == nil:
		case now.left == 0:
			now.end()
			delete(t.now, of)
			now = nil
		default:
			now.left--
		}
		if now != nil {
			what += ", " + of + " " + now.what
		}
	}
	return what
}

// over ends all troubles.
func (t *troubles) over() {
	for of, now := range t.now {
		now.end()
		delete(t.now, of)
	}
}

func (t *troubles) begin(of string, random *rand.Rand) *trouble {
	left := random.IntN(3)
	if of == "driver" {
		switch random.IntN(3) {
		case 0:
			t.driver.Stop()
			return &trouble{"has ended", func() {
				if err := t.driver.Start(t.Node.Root); err != nil {
					t.T.Error(err)
				}
			}, left}
		case 1:
			return &trouble{"hangs", t.mood.hang(), left}
		default:
			return &trouble{"refuses", t.mood.refuse(), left}
		}
	}
	p := t.plugins[of]
	first, second := stock(of)
	list := func(ids []string, sick int) {
		all := nics(ids)
		for i, d := range all {
			if of == gpu {
				d.Topology = nil
			}
			if i < sick {
				d.Health = pluginapi.Unhealthy
			}
		}
		p.Set(all...)
	}
	back := func() { list(first, 0) }
	switch random.IntN(4) {
	case 0:
		p.Die()
		return &trouble{"has ended", p.Live, left}
	case 1:
		return &trouble{"hangs", p.Hang(), left}
	case 2: // as many as before, and pods may have those that it does not know any more
		gone := random.IntN(len(first) - spare)
		p.Die()
		list(append(append([]string{}, first[:gone]...), append(first[gone+spare:], second...)...), 0)
		p.Live()
		return &trouble{fmt.Sprintf("has come back without %v", first[gone:gone+spare]), back, left}
	default:
		list(first, spare)
		return &trouble{fmt.Sprintf("says that %v are not healthy", first[:spare]), back, left}
	}
}

// faultPoints are those that a pod's devices, claims, CPUs and status pass, each with how
// often it is passed in a life of the service before it is killed there, so that it gets on.
var faultPoints = []struct {
	name string
	off  int
}{
	{"resource.admit", 1}, {"resource.devices.answered", 1}, {"resource.release", 1},
	{"dra.prepare", 1}, {"dra.prepared", 1}, {"dra.unprepare", 1}, {"dra.unprepared", 1},
	{"store.write", 25}, {"store.written", 25}, {"file.write", 8}, {"file.written", 8},
	{"podworker.create", 1}, {"podworker.sandbox", 1}, {"podworker.start", 1}, {"podworker.stop", 1}, {"podworker.journal", 3}, {"podworker.journaled", 3},
	{"status.write", 4}, {"volume.setup", 1}, {"volume.remove", 1}, {"config.keep", 4},
}
