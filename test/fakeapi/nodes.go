// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

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
