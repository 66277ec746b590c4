// SPDX-License-Identifier: Apache-2.0

// Package netdisk keeps the iSCSI and FC disks of pods: which pod has which, so that
// one is let go of when no pod has it.
//
// What is to be done with a disk needs root's tools (ToolsService): they log in, format,
// and mount it once for the node. Pods get that mount bound, or the device itself. A use
// is in the journal before anything is done for it, without its secrets, and leaves it
// when the disk has been let go of.
package netdisk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// ISCSI is a unit of an iSCSI target, as the journal keeps it.
type ISCSI struct {
	// Portal is the first as it was written: the attach controller knows it so.
	Portal        string   `json:"portal"`
	Portals       []string `json:"portals"`
	Target        string   `json:"target"`
	LUN           int32    `json:"lun"`
	Interface     string   `json:"interface"`
	InitiatorName string   `json:"initiatorName,omitempty"`
	// Volume is the name of the volume: with an initiator name, its sessions are
	// its own.
	Volume string `json:"volume"`
}

// FC is a unit of FC targets, or a disk by its names.
type FC struct {
	WWNs  []string `json:"wwns,omitempty"`
	LUN   int32    `json:"lun"`
	WWIDs []string `json:"wwids,omitempty"`
}

// Disk is one of both.
type Disk struct {
	ISCSI *ISCSI `json:"iscsi,omitempty"`
	FC    *FC    `json:"fc,omitempty"`
}

// Asked is what a volume asks for.
type Asked struct {
	Disk
	Block, ReadOnly bool
	FSType          string
	Options         []string
	// Secret with CHAP credentials, for discovery, for sessions, or both.
	Secret             *v1.SecretReference
	Discovery, Session bool
}

// usual are the port and the interface record of those that name none (API defaults).
const (
	usualPort      = "3260"
	usualInterface = "default"
)

// portal is host:port.
func portal(text string) string {
	if strings.HasPrefix(text, "[") {
		if strings.HasSuffix(text, "]") {
			return text + ":" + usualPort
		}
		return text
	}
	if !strings.Contains(text, ":") {
		return text + ":" + usualPort
	}
	return text
}

// FromISCSI is what an iSCSI volume asks for. name is the volume's: in the pod, or of the
// persistent volume. namespace is where its secret is.
func FromISCSI(s *v1.ISCSIPersistentVolumeSource, name, namespace string) *Asked {
	i := &ISCSI{Portal: s.TargetPortal, Target: s.IQN, LUN: s.Lun, Interface: s.ISCSIInterface, Volume: name}
	for _, text := range append([]string{s.TargetPortal}, s.Portals...) {
		if p := portal(text); !slices.Contains(i.Portals, p) {
			i.Portals = append(i.Portals, p)
		}
	}
	i.Interface = cmp.Or(i.Interface, usualInterface)
	i.InitiatorName = ptr.Deref(s.InitiatorName, "")
	a := &Asked{Disk: Disk{ISCSI: i}, ReadOnly: s.ReadOnly, FSType: s.FSType, Discovery: s.DiscoveryCHAPAuth, Session: s.SessionCHAPAuth}
	if (a.Discovery || a.Session) && s.SecretRef != nil {
		a.Secret = s.SecretRef.DeepCopy()
		a.Secret.Namespace = cmp.Or(a.Secret.Namespace, namespace)
	}
	return a
}

// Inline is what an iSCSI volume of a pod's own asks for.
func Inline(s *v1.ISCSIVolumeSource, name, namespace string) *Asked {
	as := &v1.ISCSIPersistentVolumeSource{
		TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, ISCSIInterface: s.ISCSIInterface, FSType: s.FSType, ReadOnly: s.ReadOnly,
		Portals: s.Portals, DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth, InitiatorName: s.InitiatorName,
	}
	if s.SecretRef != nil {
		as.SecretRef = &v1.SecretReference{Name: s.SecretRef.Name}
	}
	return FromISCSI(as, name, namespace)
}

// FromFC is what an FC volume asks for.
func FromFC(s *v1.FCVolumeSource) (*Asked, error) {
	f := &FC{WWNs: s.TargetWWNs}
	switch {
	case len(s.TargetWWNs) > 0 && s.Lun != nil:
		f.LUN = *s.Lun
	case len(s.WWIDs) > 0:
		f.WWNs, f.WWIDs = nil, s.WWIDs
	default:
		return nil, errors.New("fc: want targetWWNs and lun, or wwids")
	}
	return &Asked{Disk: Disk{FC: f}, ReadOnly: s.ReadOnly, FSType: s.FSType}, nil
}

// AttachName is the attach controller's name of a disk.
func (d *Disk) AttachName() string {
	switch {
	case d.ISCSI != nil:
		return fmt.Sprintf("kubernetes.io/iscsi/%s:%s:%d", d.ISCSI.Portal, d.ISCSI.Target, d.ISCSI.LUN)
	case len(d.FC.WWNs) > 0:
		return fmt.Sprintf("kubernetes.io/fc/%v:%d", d.FC.WWNs, d.FC.LUN)
	}
	return fmt.Sprintf("kubernetes.io/fc/%v", d.FC.WWIDs)
}

// id is the same for volumes that are the same disk, by the same sessions.
func (d *Disk) id() string {
	if d.ISCSI != nil {
		return fmt.Sprintf("%s %s %d", d.session(), d.ISCSI.Portals[0], d.ISCSI.LUN)
	}
	return d.AttachName()
}

// session is the same for disks that share sessions; "" for those without.
func (d *Disk) session() string {
	i := d.ISCSI
	switch {
	case i == nil:
		return ""
	case i.InitiatorName != "":
		return i.Target + " " + i.Portals[0] + ":" + i.Volume
	}
	return i.Target + " " + i.Interface
}

func (d *Disk) wire() *supervisorv1.NetworkDisk {
	if i := d.ISCSI; i != nil {
		return &supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Iscsi{Iscsi: &supervisorv1.ISCSIDisk{
			Portals: i.Portals, Target: i.Target, Lun: uint32(i.LUN), Interface: i.Interface, InitiatorName: i.InitiatorName, Volume: i.Volume,
		}}}
	}
	return &supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Fc{Fc: &supervisorv1.FCDisk{Wwns: d.FC.WWNs, Lun: uint32(d.FC.LUN), Wwids: d.FC.WWIDs}}}
}

// CHAP are the credentials in a secret for discovery ("discovery.sendtargets.auth") or
// sessions ("node.session.auth").
func CHAP(secret *v1.Secret, prefix string) *supervisorv1.CHAP {
	of := func(name string) string { return string(secret.Data[prefix+"."+name]) }
	return &supervisorv1.CHAP{Username: of("username"), Password: of("password"), UsernameIn: of("username_in"), PasswordIn: of("password_in")}
}
