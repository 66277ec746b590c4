// SPDX-License-Identifier: Apache-2.0

// Package csinode sees to it that the node has a CSINode object, the one volume
// drivers are registered in: attaching volumes to the node waits for it, and so
// does its readiness.
//
// It owns the object: its existence, its owner, the note which in-tree plugins are
// served by drivers, and the list of the drivers that are registered. What it did is at the API
// server: after kill -9 it looks again.
package csinode

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
)

// API is what is asked of the API server.
type API interface {
	GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error)
	CreateCSINode(ctx context.Context, node *storagev1.CSINode) (*storagev1.CSINode, error)
	UpdateCSINode(ctx context.Context, node *storagev1.CSINode) (*storagev1.CSINode, error)
	DeleteCSINode(ctx context.Context, name string, uid types.UID) error
}

// Back-off of tries.
var retries = backoff.Doubling{Least: 100 * time.Millisecond, Most: 10 * time.Second}

// migrated are the in-tree plugins whose volumes are drivers' work (KEP-625, all
// locked on since 1.31).
var migrated = []string{
	"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/azure-file", "kubernetes.io/cinder",
	"kubernetes.io/gce-pd", "kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume",
}

// Deps of a keeper.
type Deps struct {
	API API
	// Node is the name and the UID of the Node; the latter is empty while it does
	// not exist.
	Node func() (name string, uid types.UID)
	// Drivers are those registered on the node, by name; false while that is not
	// known. With nil the list is left alone.
	Drivers func() ([]storagev1.CSINodeDriver, bool)
	// Wake says that the Node, or the drivers, may be others.
	Wake signal.Signal
	// Changed is called when Problem may answer otherwise.
	Changed func()
	Log     *slog.Logger
}

// Keeper keeps the object. Safe for concurrent use.
type Keeper struct {
	deps Deps

	mu      sync.Mutex
	done    types.UID // of the Node whose CSINode is as it should be
	problem string
	wrote   *[]storagev1.CSINodeDriver // the drivers it lists, by this process
}

// New makes a keeper; Run works.
func New(deps Deps) *Keeper {
	return &Keeper{deps: deps, problem: "CSINode is not yet initialized"}
}

// Problem says why the object is not as it should be; empty when it is.
func (k *Keeper) Problem() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	retries.Work(ctx, k.deps.Wake, k.look)
	return nil
}

// look makes sure of the object and its list, and reports whether both are as they should be.
func (k *Keeper) look(ctx context.Context) (done bool) {
	name, uid := k.deps.Node()
	k.mu.Lock()
	there := uid == k.done
	k.mu.Unlock()
	if uid == "" || there && k.listed() {
		return true
	}
	if !there {
		err := k.ensure(ctx, name, uid)
		if ctx.Err() != nil {
			return false
		}
		k.settle(uid, err)
		if err != nil {
			return false
		}
	}
	return k.list(ctx, name) == nil
}

// settle notes how a try ended.
func (k *Keeper) settle(uid types.UID, err error) {
	problem := ""
	if err != nil {
		problem = "failed to initialize CSINode: " + err.Error()
	}
	k.mu.Lock()
	changed := k.problem != problem
	k.problem = problem
	if err == nil {
		k.done, k.wrote = uid, nil
	}
	k.mu.Unlock()
	if !changed {
		return
	}
	if err != nil {
		k.deps.Log.Warn("CSINode is not as it should be", service.KeyError, err.Error())
	} else {
		k.deps.Log.Info("CSINode is as it should be")
	}
	k.deps.Changed()
}

// ensure makes the object, or takes over the one there is. One of another Node of
// the same name is deleted; the next try makes a new one.
func (k *Keeper) ensure(ctx context.Context, name string, uid types.UID) error {
	existing, err := k.deps.API.GetCSINode(ctx, name)
	if apierrors.IsNotFound(err) {
		_, err := k.deps.API.CreateCSINode(ctx, object(name, uid))
		return err
	}
	if err != nil {
		return err
	}
	if !owned(existing, name, uid) {
		if err := k.deps.API.DeleteCSINode(ctx, name, existing.UID); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("the one of a former Node: %w", err)
		}
		_, err := k.deps.API.CreateCSINode(ctx, object(name, uid))
		return err
	}
	if noted(existing) {
		return nil
	}
	want := existing.DeepCopy()
	note(want)
	_, err = k.deps.API.UpdateCSINode(ctx, want)
	return err
}

func object(name string, uid types.UID) *storagev1.CSINode {
	n := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}},
		},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}},
	}
	note(n)
	return n
}

func owned(n *storagev1.CSINode, name string, uid types.UID) bool {
	return slices.ContainsFunc(n.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "Node" && o.Name == name && o.UID == uid
	})
}

// note says which plugins are migrated.
func note(n *storagev1.CSINode) {
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[v1.MigratedPluginsAnnotationKey] = strings.Join(migrated, ",")
}

func noted(n *storagev1.CSINode) bool {
	have := strings.Split(n.Annotations[v1.MigratedPluginsAnnotationKey], ",")
	slices.Sort(have)
	return slices.Equal(have, migrated)
}
