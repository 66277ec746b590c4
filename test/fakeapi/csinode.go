// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// CSINode as stored, nil without.
func (c *Cluster) CSINode(name string) *storagev1.CSINode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.csinodes[name].DeepCopy()
}

// csinode gets or creates one.
func (c *Cluster) csinode(ctx context.Context, verb, name string, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	end, err := c.begin(ctx, verb, "csinodes", name, nil)
	defer end()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, ok := c.csinodes[name]
	switch {
	case verb == "get" && ok:
		return stored.DeepCopy(), nil
	case verb == "get":
		return nil, apierrors.NewNotFound(groupResource("csinodes"), name)
	case ok:
		return nil, apierrors.NewAlreadyExists(groupResource("csinodes"), name)
	}
	n = n.DeepCopy()
	n.ResourceVersion = c.next()
	c.csinodes[name] = n
	return n.DeepCopy(), nil
}
