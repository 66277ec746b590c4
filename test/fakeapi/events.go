// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"errors"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CreateEvent implements events.API.
func (c *Cluster) CreateEvent(ctx context.Context, e *v1.Event) (*v1.Event, error) {
	key := Key(e.Namespace, e.Name)
	end, err := c.begin(ctx, "create", "events", key, nil)
	defer end()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.events[key]; ok {
		return nil, apierrors.NewAlreadyExists(groupResource("events"), e.Name)
	}
	e = e.DeepCopy()
	e.ResourceVersion = c.next()
	c.events[key] = e
	return e.DeepCopy(), nil
}

// PatchEvent implements events.API.
func (c *Cluster) PatchEvent(ctx context.Context, namespace, name string, body []byte) (*v1.Event, error) {
	key := Key(namespace, name)
	end, err := c.begin(ctx, "patch", "events", key, body)
	defer end()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.events[key]
	if !ok {
		return nil, apierrors.NewNotFound(groupResource("events"), name)
	}
	now := &v1.Event{}
	if err := patch(was, body, now); err != nil {
		return nil, err
	}
	now.ResourceVersion = c.next()
	c.events[key] = now
	return now.DeepCopy(), nil
}

// Events as stored, oldest first.
func (c *Cluster) Events() []*v1.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*v1.Event
	for _, e := range c.events {
		out = append(out, e.DeepCopy())
	}
	slices.SortFunc(out, func(a, b *v1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	return out
}

// ExpireEvents removes all events, as their time to live does.
func (c *Cluster) ExpireEvents() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.events)
}

// Lease as stored, nil without.
func (c *Cluster) Lease(name string) *coordinationv1.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[name].DeepCopy()
}

func (c *Cluster) lease(ctx context.Context, verb, name string, body *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	end, err := c.begin(ctx, verb, "leases", name, nil)
	defer end()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.leases[name]
	switch {
	case verb == "create" && ok:
		return nil, apierrors.NewAlreadyExists(groupResource("leases"), name)
	case verb != "create" && !ok:
		return nil, apierrors.NewNotFound(groupResource("leases"), name)
	case verb == "get":
		return was.DeepCopy(), nil
	case verb == "update" && body.ResourceVersion != was.ResourceVersion:
		return nil, apierrors.NewConflict(groupResource("leases"), name, errors.New("the object has been modified"))
	}
	body = body.DeepCopy()
	if verb == "create" {
		body.CreationTimestamp = metav1.Now()
	}
	body.ResourceVersion = c.next()
	c.leases[name] = body
	return body.DeepCopy(), nil
}
