// SPDX-License-Identifier: Apache-2.0

// Package claim decides which persistent volume a volume of a pod leads to. It
// is pure; objects come in as lookups.
//
// A claim and its volume must name each other (the volume by the claim's UID),
// the volume must be this node's (node affinity), and be used as what it is: a
// file system or a block device. Errors say what is not so, as the kubelet does.
package claim

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	storage "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
)

// Objects looks up what a pod refers to. Errors say that an object is not there
// or not known yet.
type Objects interface {
	Claim(namespace, name string) (*v1.PersistentVolumeClaim, error)
	Volume(name string) (*v1.PersistentVolume, error)
	// Node is this node's.
	Node() (*v1.Node, error)
}

// Source is what a volume of a pod leads to.
type Source struct {
	// Claim is empty for a volume that the pod names without one.
	Claim *v1.PersistentVolumeClaim
	// Volume is that of the CSI driver where the type was migrated.
	Volume *v1.PersistentVolume
	// Block says that containers get the device, not a file system.
	Block bool
	// ReadOnly is the pod's wish for all its containers.
	ReadOnly bool
}

// Exclusive reports whether one pod only may have the volume (ReadWriteOncePod).
func (s *Source) Exclusive() bool {
	return slices.Contains(s.Volume.Spec.AccessModes, v1.ReadWriteOncePod)
}

// protection is the finalizer of a claim that pods use.
const protection = "kubernetes.io/pvc-protection"

// Resolve finds what a volume of a pod leads to, or says what is missing.
func Resolve(p *v1.Pod, v *v1.Volume, objects Objects) (*Source, error) {
	name := volumetype.ClaimName(p, v)
	switch {
	case name != "":
	case volumetype.Indirect(p, v):
		return inline(p, v)
	default:
		return nil, fmt.Errorf("volume %s comes from no claim", v.Name)
	}
	claim, err := bound(p.Namespace, name, objects)
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: %w", p.Namespace, name, err)
	}
	s := &Source{Claim: claim}
	if v.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(p, claim); err != nil {
			return nil, err
		}
	} else {
		s.ReadOnly = v.PersistentVolumeClaim.ReadOnly
	}
	if s.Volume, err = volume(claim, objects); err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: %w", p.Namespace, name, err)
	}
	mode := ptr.Deref(s.Volume.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
	s.Block = mode == v1.PersistentVolumeBlock
	if err := used(p, v.Name, mode); err != nil {
		return nil, err
	}
	if err := here(s.Volume, objects); err != nil {
		return nil, err
	}
	return s, nil
}

// inline is what a volume of a migrated type leads to that a pod has without a claim. That
// it is read-only is up to the driver, by its access mode: so does a kubelet.
func inline(p *v1.Pod, v *v1.Volume) (*Source, error) {
	pv, err := volumetype.TranslateInline(p, v)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", v.Name, err)
	}
	if err := used(p, v.Name, v1.PersistentVolumeFilesystem); err != nil {
		return nil, err
	}
	return &Source{Claim: &v1.PersistentVolumeClaim{}, Volume: pv}, nil
}

// bound finds a claim that has a volume.
func bound(namespace, name string, objects Objects) (*v1.PersistentVolumeClaim, error) {
	c, err := objects.Claim(namespace, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	case c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, protection):
		return nil, errors.New("PVC is being deleted")
	case c.Status.Phase != v1.ClaimBound:
		return nil, errors.New("PVC is not bound")
	case c.Spec.VolumeName == "":
		return nil, errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return c, nil
}

// volume finds the volume of a claim, which must know of it.
func volume(c *v1.PersistentVolumeClaim, objects Objects) (*v1.PersistentVolume, error) {
	name := c.Spec.VolumeName
	pv, err := objects.Volume(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("failed to fetch PV %s from API server: %w", name, err)
	case pv.Spec.ClaimRef == nil:
		return nil, fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", name)
	case pv.Spec.ClaimRef.UID != c.UID:
		return nil, fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", name, pv.Spec.ClaimRef.UID, c.UID)
	}
	if pv, err = volumetype.Translate(pv); err != nil {
		return nil, fmt.Errorf("PV %s: %w", name, err)
	}
	return pv, nil
}

// used makes sure that containers take the volume as what it is.
func used(p *v1.Pod, name string, mode v1.PersistentVolumeMode) error {
	mounts, devices := pod.Uses(p, name)
	if mounts && mode != v1.PersistentVolumeFilesystem {
		return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", name, mode)
	}
	if devices && mode != v1.PersistentVolumeBlock {
		return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", name, mode)
	}
	return nil
}

// here makes sure that the volume is to be had on this node.
func here(pv *v1.PersistentVolume, objects Objects) error {
	if pv.Spec.NodeAffinity == nil {
		return nil
	}
	node, err := objects.Node()
	if err != nil {
		return fmt.Errorf("node affinity of PV %s: %w", pv.Name, err)
	}
	if err := storage.CheckNodeAffinity(pv, node.Labels); err != nil {
		return fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q: %w", pv.Name, err)
	}
	return nil
}
