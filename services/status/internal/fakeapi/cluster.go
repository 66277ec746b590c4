// Package fakeapi is an API server for tests: it keeps pods, Nodes, CSINodes,
// Leases and Events as the real one does, as far as a node agent can tell (resource versions, UID
// preconditions, strategic merge patches of the status subresource), remembers every
// request, and can be told to be slow, to fail and to be away.
//
// It works as Go calls, for tests on synthetic time, and over HTTP (Serve).
package fakeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
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

// Key of an object.
func Key(namespace, name string) string { return namespace + "/" + name }

// Put stores a pod as somebody else would write it, and answers it as stored.
func (c *Cluster) Put(p *v1.Pod) *v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = p.DeepCopy()
	p.ResourceVersion = c.next()
	c.pods[Key(p.Namespace, p.Name)] = p
	c.tell()
	return p.DeepCopy()
}

// Pods as stored.
func (c *Cluster) Pods() (out []*v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		out = append(out, p.DeepCopy())
	}
	return out
}

// Pod as stored, nil without.
func (c *Cluster) Pod(namespace, name string) *v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[Key(namespace, name)].DeepCopy()
}

// RemovePod as somebody else would.
func (c *Cluster) RemovePod(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, Key(namespace, name))
	c.tell()
}

// PatchStatus implements report.API.
func (c *Cluster) PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	key := Key(namespace, name)
	end, err := c.begin(ctx, "patch", "pods/status", key, body)
	defer end()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.pods[key]
	if !ok {
		return nil, apierrors.NewNotFound(groupResource("pods"), name)
	}
	now := &v1.Pod{}
	if err := patch(was, body, now); err != nil {
		return nil, err
	}
	if now.UID != was.UID {
		return nil, apierrors.NewConflict(groupResource("pods"), name, fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", now.UID, was.UID))
	}
	was = was.DeepCopy()
	was.Status = now.Status
	was.ResourceVersion = c.next()
	c.pods[key] = was
	return was.DeepCopy(), nil
}

func patch[T any](was *T, body []byte, into *T) error {
	before, err := json.Marshal(was)
	if err != nil {
		return err
	}
	after, err := strategicpatch.StrategicMergePatch(before, body, *new(T))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return json.Unmarshal(after, into)
}

// CreatePod implements report.API.
func (c *Cluster) CreatePod(ctx context.Context, p *v1.Pod) (*v1.Pod, error) {
	key := Key(p.Namespace, p.Name)
	end, err := c.begin(ctx, "create", "pods", key, nil)
	defer end()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.pods[key]; ok {
		return nil, apierrors.NewAlreadyExists(groupResource("pods"), p.Name)
	}
	p = p.DeepCopy()
	p.ResourceVersion = c.next()
	p.UID = types.UID("api-" + p.ResourceVersion)
	p.Status = v1.PodStatus{Phase: v1.PodPending}
	c.pods[key] = p
	return p.DeepCopy(), nil
}

// DeletePod implements report.API.
func (c *Cluster) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	key := Key(namespace, name)
	end, err := c.begin(ctx, "delete", "pods", key, nil)
	defer end()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pods[key]
	if !ok {
		return apierrors.NewNotFound(groupResource("pods"), name)
	}
	if p.UID != uid {
		return apierrors.NewConflict(groupResource("pods"), name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", uid, p.UID))
	}
	delete(c.pods, key)
	return nil
}

// CreateNode implements nodesync.API.
func (c *Cluster) CreateNode(ctx context.Context, n *v1.Node) (*v1.Node, error) {
	end, err := c.begin(ctx, "create", "nodes", n.Name, nil)
	defer end()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.nodes[n.Name]; ok {
		return nil, apierrors.NewAlreadyExists(groupResource("nodes"), n.Name)
	}
	n = n.DeepCopy()
	n.ResourceVersion = c.next()
	n.UID = types.UID("node-" + n.ResourceVersion)
	c.nodes[n.Name] = n
	return n.DeepCopy(), nil
}

// GetNode implements nodesync.API.
func (c *Cluster) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	end, err := c.begin(ctx, "get", "nodes", name, nil)
	defer end()
	if err != nil {
		return nil, err
	}
	if n := c.Node(name); n != nil {
		return n, nil
	}
	return nil, apierrors.NewNotFound(groupResource("nodes"), name)
}

// PatchNodeStatus implements nodesync.API.
func (c *Cluster) PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	end, err := c.begin(ctx, "patch", "nodes/status", name, body)
	defer end()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.nodes[name]
	if !ok {
		return nil, apierrors.NewNotFound(groupResource("nodes"), name)
	}
	now := &v1.Node{}
	if err := patch(was, body, now); err != nil {
		return nil, err
	}
	now.Spec = was.Spec
	now.ResourceVersion = c.next()
	c.nodes[name] = now
	return now.DeepCopy(), nil
}

// Node as stored, nil without.
func (c *Cluster) Node(name string) *v1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name].DeepCopy()
}

// PutNode stores a Node as somebody else would write it; nil removes it.
func (c *Cluster) PutNode(name string, n *v1.Node) *v1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.tell()
	if n == nil {
		delete(c.nodes, name)
		return nil
	}
	n = n.DeepCopy()
	n.ResourceVersion = c.next()
	c.nodes[name] = n
	return n.DeepCopy()
}

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
