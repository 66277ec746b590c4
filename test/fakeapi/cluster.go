// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is an API server for tests: it keeps pods, Nodes, CSINodes,
// Leases and Events as the real one does, as far as a node agent can tell (resource versions, UID
// preconditions, strategic merge patches of the status subresource), remembers every
// request, and can be told to be slow, to fail and to be away.
//
// It works as Go calls, for tests on synthetic time, and over HTTP (Serve).
package fakeapi

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request is one request as it arrived.
type Request struct {
	// Verb is get, create, update, patch or delete; Resource is pods, pods/status, …;
	// Key is namespace/name or name.
	Verb, Resource, Key string
	Body                string
	At                  time.Time
}

func (r Request) String() string { return r.Verb + " " + r.Resource + " " + r.Key }

// ErrAway is what requests fail with while the cluster is away.
var ErrAway = errors.New("connection refused")

// Cluster is the API server.
type Cluster struct {
	mu       sync.Mutex
	version  uint64
	pods     map[string]*v1.Pod
	nodes    map[string]*v1.Node
	leases   map[string]*coordinationv1.Lease
	csinodes map[string]*storagev1.CSINode
	events   map[string]*v1.Event
	requests []Request
	flying   map[string]int
	parallel int
	overlaps int
	away     bool
	hook     func(ctx context.Context, r Request) error
	changed  chan struct{}
}

// New makes an empty cluster.
func New() *Cluster {
	return &Cluster{
		pods: map[string]*v1.Pod{}, nodes: map[string]*v1.Node{}, leases: map[string]*coordinationv1.Lease{},
		csinodes: map[string]*storagev1.CSINode{}, events: map[string]*v1.Event{}, flying: map[string]int{}, changed: make(chan struct{}),
	}
}

// Hook is called with each request before it is answered; what it returns is the
// answer, unless nil.
func (c *Cluster) Hook(hook func(ctx context.Context, r Request) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// Away switches the cluster off and on.
func (c *Cluster) Away(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

// Requests are all requests so far that match: a verb and a resource, each empty for
// any.
func (c *Cluster) Requests(verb, resource string) (out []Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if (verb == "" || r.Verb == verb) && (resource == "" || r.Resource == resource) {
			out = append(out, r)
		}
	}
	return out
}

// Parallel is the largest number of requests at one time, and how often two were for
// one object.
func (c *Cluster) Parallel() (most, overlaps int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parallel, c.overlaps
}

// Eventually waits until check holds, looking after each change.
func (c *Cluster) Eventually(ctx context.Context, check func() bool) error {
	look := time.NewTicker(10 * time.Millisecond) // a check may be about more than the cluster
	defer look.Stop()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if check() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-look.C:
		}
	}
}

// begin lets a request in, or says why not.
func (c *Cluster) begin(ctx context.Context, verb, resource, key string, body []byte) (end func(), err error) {
	r := Request{Verb: verb, Resource: resource, Key: key, Body: string(body), At: time.Now()}
	c.mu.Lock()
	c.requests = append(c.requests, r)
	away, hook := c.away, c.hook
	object := resource[:min(4, len(resource))] + " " + key
	c.flying[object]++
	if c.flying[object] > 1 {
		c.overlaps++
	}
	n := 0
	for _, flying := range c.flying {
		n += flying
	}
	c.parallel = max(c.parallel, n)
	c.mu.Unlock()
	end = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.flying[object]--; c.flying[object] == 0 {
			delete(c.flying, object)
		}
		c.tell()
	}
	if away {
		return end, ErrAway
	}
	if hook != nil {
		if err := hook(ctx, r); err != nil {
			return end, err
		}
	}
	return end, ctx.Err()
}

// tell wakes Eventually; c.mu is held.
func (c *Cluster) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// next is a new resource version; c.mu is held.
func (c *Cluster) next() string {
	c.version++
	return strconv.FormatUint(c.version, 10)
}

func groupResource(resource string) schema.GroupResource {
	return schema.GroupResource{Resource: resource}
}
