// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"crypto/sha256"
	"fmt"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Request is what a pod wants of a driver. It has many fields because it is the sum
// of what NodeStageVolume, NodePublishVolume and NodeExpandVolume of the CSI ask for.
type Request struct {
	UID types.UID
	// Volume is the name in pod.spec.volumes; Name that of the volume on disk: the
	// persistent volume's, or Volume for an inline one.
	Volume, Name   string
	Driver, Handle string
	// Inline volumes live and die with their pod, and are never staged.
	Inline bool
	// Attachable volumes are attached before they get here.
	Attachable bool
	Block      bool
	ReadOnly   bool
	// Exclusive: one pod only may have it.
	Exclusive bool
	// Republish asks the driver to publish again what is published.
	Republish bool

	FSType       string
	AccessMode   v1.PersistentVolumeAccessMode
	MountOptions []string
	// Label is the SELinux label that the mount gives to all files; empty for none.
	Label string
	// Attributes are the volume's own; PublishAttributes is what publishing adds
	// to them: pod information, tokens.
	Attributes, PublishAttributes               map[string]string
	PublishContext                              map[string]string
	StageSecrets, PublishSecrets, ExpandSecrets map[string]string
	// FSGroup is the pod's; GiveFSGroup says that the node gives the volume to it
	// unless the driver does.
	FSGroup     *int64
	GiveFSGroup bool
	// GroupOnMismatch: only if the volume's root is not the group's already.
	GroupOnMismatch bool
	// Size is what the volume is to have in bytes, if it has to grow; else zero. Had
	// is what it had before by its claim.
	Size, Had int64
	// Node and Attachment go into vol_data.json.
	Node, Attachment string
}

// volume is the name of a volume on this node.
func (r *Request) volume() string { return r.Driver + "^" + r.Handle }

// LabelOption is the mount option that gives all files a label (mount(8): there are
// commas in a label, which the quotes are for).
func LabelOption(label string) string { return fmt.Sprintf("context=%q", label) }

// InlineHandle is the handle of an inline volume (the kubelet's).
func InlineHandle(uid types.UID, volume string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(uid)+volume)))
}

// Attachment is the name of a volume's VolumeAttachment on a node.
func Attachment(driver, handle, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// accessMode of the CSI for one of Kubernetes. single says that the driver tells
// one writing pod from several on a node (KEP-2485).
func accessMode(mode v1.PersistentVolumeAccessMode, single bool) csi.VolumeCapability_AccessMode_Mode {
	switch mode {
	case v1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case v1.ReadWriteOncePod:
		if single {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
	case v1.ReadWriteOnce:
		if single {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
	}
	return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}

// capability describes how a volume is used. group is the fsGroup that the driver
// is to apply.
func (r *Request) capability(single bool, group string) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessMode(r.AccessMode, single)}}
	if r.Block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return c
	}
	flags := r.MountOptions
	if r.Label != "" {
		flags = append(slices.Clone(flags), LabelOption(r.Label))
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
		FsType: r.FSType, MountFlags: flags, VolumeMountGroup: group,
	}}
	return c
}
