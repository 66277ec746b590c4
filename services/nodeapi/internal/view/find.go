// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

// Answers of the kubelet, word for word.
var (
	errNoPod    = reply.Errorf(http.StatusNotFound, "pod does not exist")
	errOtherPod = reply.Errorf(http.StatusNotFound, "pod not found")
)

// How long a feed is read again for what is not known, and how often.
const (
	renewLimit = 2 * time.Second
	renewRetry = 50 * time.Millisecond
)

// Find finds a desired pod by its name and, unless empty, its UID. A static pod has its
// own UID and its mirror pod's.
func (p *Pods) Find(ctx context.Context, namespace, name, uid string) (*v1.Pod, error) {
	d := p.named(namespace, name)
	if d == nil {
		p.renew(ctx, p.desired.Pull)
		d = p.named(namespace, name)
	}
	switch {
	case d == nil:
		return nil, errNoPod
	case uid != "" && uid != d.uid && uid != d.mirror:
		return nil, errOtherPod
	}
	return unpack(d.packed)
}

// named is the pod of a name, nil if there is none; of two, the one that is not deleted.
func (p *Pods) named(namespace, name string) (found *desired) {
	for _, d := range p.desired.Items() {
		if d.namespace == namespace && d.name == name && (found == nil || found.deleted) {
			found = d
		}
	}
	return found
}

// Target is a pod of which something must run.
type Target struct {
	Pod *v1.Pod
	// Container is empty for the sandbox.
	Container string
	// Missing is the kubelet's text for when it does not run.
	Missing string
	// Once: the action must not be repeated.
	Once bool
}

// Do calls an action with the runtime's id of a target. If nothing runs, or the runtime
// refuses, what is known may be out of date: it is renewed once, and another id is tried.
// An action with Once is tried again only if the runtime does not know the first id. An
// error of the action that is a reply.Error is final.
func (p *Pods) Do(ctx context.Context, t Target, action func(id string) error) error {
	id, err := p.idOf(t)
	if err == nil {
		err = action(id)
	}
	var final *reply.Error
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case id != "" && (errors.As(err, &final) || t.Once && !rpc.Is(err, rpc.NotFound)):
		return err
	}
	p.renew(ctx, p.running.Pull)
	if newer, missing := p.idOf(t); missing == nil && newer != id {
		return action(newer)
	}
	return err
}

func (p *Pods) idOf(t Target) (string, error) {
	if seen, ok := p.running.Get(string(t.Pod.UID)); ok {
		if t.Container == "" && len(seen.Sandboxes) > 0 {
			return seen.Sandboxes[0], nil
		}
		for _, c := range seen.Containers {
			if c.Name == t.Container {
				return c.ID, nil
			}
		}
	}
	return "", reply.Errorf(http.StatusInternalServerError, "%s", t.Missing)
}

// renew pulls a feed, and waits for an owner that restarts. If that takes too long what is
// known is used.
func (p *Pods) renew(ctx context.Context, pull func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	for {
		err := pull(ctx)
		if !rpc.Is(err, rpc.Unavailable) {
			return
		}
		select {
		case <-ctx.Done():
			p.callers.Log(ctx, slog.LevelWarn, "", "feed not renewed, last items used", service.KeyError, err.Error())
			return
		case <-time.After(renewRetry):
		}
	}
}
