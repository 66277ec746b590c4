// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"maps"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/pleg/internal/record"
)

// inventory is sandboxes and containers of one pod, by ID; of each container its sandbox.
type inventory struct {
	sandboxes  map[string]bool
	containers map[string]string
}

func newInventory() inventory {
	return inventory{sandboxes: map[string]bool{}, containers: map[string]string{}}
}

func (i inventory) add(other inventory) {
	maps.Copy(i.sandboxes, other.sandboxes)
	maps.Copy(i.containers, other.containers)
}

// inventoryOf is what a listing shows.
func inventoryOf(l *record.Listing) inventory {
	i := newInventory()
	for _, s := range l.Sandboxes {
		i.sandboxes[s.GetId()] = true
	}
	for _, c := range l.Containers {
		i.containers[c.GetId()] = c.GetPodSandboxId()
	}
	return i
}

// question is how a pod is to be read. One that lists finds everything. Another one asks
// the runtime about what the last reading found and about of, without what was removed,
// and needs either a last reading or that of is all there may be.
type question struct {
	list, all bool
	// given is a list that was made when so many readings had ended (readers.mark). It
	// serves by itself alone, and not if a reading of the pod has ended since.
	given   *record.Listing
	since   uint64
	of      inventory
	removed map[string]bool
	// changed are containers that an event named. Of the others, those that had exited
	// have not changed.
	changed map[string]bool
}

func newQuestion() question {
	return question{of: newInventory(), removed: map[string]bool{}, changed: map[string]bool{}}
}

// listed is the question that finds everything.
func listed() question {
	q := newQuestion()
	q.list = true
	return q
}

// given is the question about what a list shows.
func given(l *record.Listing, since uint64) question {
	q := newQuestion()
	q.given, q.since = l, since
	return q
}

// asked is the question of a caller of Refresh.
func asked(m *plegv1.Inventory) question {
	if m == nil {
		return listed()
	}
	q := newQuestion()
	q.all = true
	for _, id := range m.GetSandboxes() {
		q.of.sandboxes[id] = true
	}
	maps.Copy(q.of.containers, m.GetContainers())
	for _, id := range m.GetRemoved() {
		q.removed[id] = true
	}
	return q
}

// noticed is the question that an event of the runtime raises.
func noticed(event *runtimeapi.ContainerEventResponse) question {
	sandbox, container := event.GetPodSandboxStatus().GetId(), event.GetContainerId()
	if sandbox == "" || container == "" {
		return listed()
	}
	q := newQuestion()
	q.of.sandboxes[sandbox] = true
	if container != sandbox {
		q.of.containers[container] = sandbox
		q.changed[container] = true
	}
	return q
}

// join makes one question of two.
func (q *question) join(other question) {
	q.list = q.list || other.list
	q.all = q.all || other.all
	if other.given != nil && (q.given == nil || other.since > q.since) {
		q.given, q.since = other.given, other.since
	}
	q.of.add(other.of)
	maps.Copy(q.removed, other.removed)
	maps.Copy(q.changed, other.changed)
}

// listing is what to ask about, given what the last reading found, nil without one, and
// which containers had exited then. nil: the runtime has to list.
func (q *question) listing(found *inventory, exited map[string]*runtimeapi.ContainerStatus) *record.Listing {
	if q.given != nil && !q.list && !q.all && len(q.of.sandboxes)+len(q.of.containers) == 0 {
		return q.given
	}
	if q.list || q.given != nil || found == nil && !q.all {
		return nil
	}
	if found != nil {
		q.of.add(*found)
	}
	l := &record.Listing{}
	for id := range q.of.sandboxes {
		if !q.removed[id] {
			l.Sandboxes = append(l.Sandboxes, &runtimeapi.PodSandbox{Id: id})
		}
	}
	for id, sandbox := range q.of.containers {
		if q.removed[id] || q.removed[sandbox] {
			continue
		}
		c := &runtimeapi.Container{Id: id, PodSandboxId: sandbox}
		if exited[id] != nil && !q.changed[id] {
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		l.Containers = append(l.Containers, c)
	}
	return l
}
