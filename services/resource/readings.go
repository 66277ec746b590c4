// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/services/resource/internal/usage"
)

// fileSystems is a reading of the node's disk and the runtime's.
type fileSystems struct {
	usage  *resourcev1.DiskUsage
	errors []string
}

// shared is how long a reading answers those who ask for one: a storm of scrapes
// costs one.
const shared = time.Second

// shelf keeps the last reading of one kind. A call while one is made waits for
// that one.
type shelf[T any] struct {
	mu   sync.Mutex
	at   time.Time
	last T
}

func (s *shelf[T]) get(now func() time.Time, read func(time.Time) T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began := now(); s.at.IsZero() || began.Sub(s.at) >= shared || began.Before(s.at) {
		s.read(began, read)
	}
	return s.last
}

// anew is a reading of now, which answers others too.
func (s *shelf[T]) anew(now func() time.Time, read func(time.Time) T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read(now(), read)
	return s.last
}

func (s *shelf[T]) read(began time.Time, read func(time.Time) T) {
	s.last, s.at = read(began), began
	time.AfterFunc(forgotten, func() { s.forget(began) })
}

// forgotten is when a reading that was not followed up is dropped: that of a full
// node takes megabytes.
const forgotten = 10 * time.Second

func (s *shelf[T]) forget(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.Equal(at) {
		var nothing T
		s.last, s.at = nothing, time.Time{}
	}
}

// readings are what the node, its pods and their containers use, read when it is asked
// for.
type readings struct {
	node   *node
	ledger *ledger
	images runtimeapi.ImageServiceClient
	now    func() time.Time

	cgroups shelf[*resourcev1.UsageResponse]
	systems shelf[*fileSystems]
	files   shelf[[]*resourcev1.PodFiles]
	rates   *usage.Rates // guarded by cgroups
	// readers are kept for their buffers; guarded by cgroups.
	readers []*gauge.Reader
}

func newReadings(host gauge.Host, node *node, ledger *ledger, images runtimeapi.ImageServiceClient, now func() time.Time) *readings {
	r := &readings{node: node, ledger: ledger, images: images, now: now, rates: usage.NewRates()}
	for range max(1, runtime.GOMAXPROCS(0)) {
		r.readers = append(r.readers, host.NewReader())
	}
	return r
}

// target is a pod to be read.
type target struct {
	uid, namespace, name, cgroup string
}

func (r *readings) targets() []target {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	all := make([]target, 0, len(r.ledger.held))
	for uid, h := range r.ledger.held {
		if len(h.Cgroup) > 0 {
			all = append(all, target{uid, h.pod.Namespace, h.pod.Name, h.Cgroup.Path(h.Driver)})
		}
	}
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.uid, b.uid) })
	return all
}
