// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
	if err := revived(was, now); err != nil {
		return nil, err
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

// revived refuses what the API server does: a container that left an end which its
// pod's restart policy makes final.
func revived(was, now *v1.Pod) error {
	if was.Spec.RestartPolicy != v1.RestartPolicyNever {
		return nil
	}
	for i := range was.Status.ContainerStatuses {
		for j := range now.Status.ContainerStatuses {
			old, s := &was.Status.ContainerStatuses[i], &now.Status.ContainerStatuses[j]
			if old.Name == s.Name && old.State.Terminated != nil && s.State.Terminated == nil {
				return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), was.Name, field.ErrorList{
					field.Forbidden(field.NewPath("status", "containerStatuses").Index(j).Child("state"), "may not be transitioned to non-terminated state"),
				})
			}
		}
	}
	return nil
}
