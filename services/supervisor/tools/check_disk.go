// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

var (
	// Names of iSCSI nodes, as the API server accepts them, without characters that
	// have a meaning in file names.
	iscsiName = pattern.Lazy(`^(iqn\.\d{4}-\d{2}\.[[:alnum:]\-.]+(:[^,;*?&$|\\\[\]\pZ\pC/]+)?|eui\.[[:xdigit:]]{16}|naa\.[[:xdigit:]]{16}([[:xdigit:]]{16})?)$`)
	// A record of iscsiadm is a file of this name. Those made for one volume are called
	// portal:volume.
	iscsiRecord = pattern.Lazy(`^[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,254}$`)
	worldwide   = pattern.Lazy(`^(0[xX])?[[:xdigit:]]{16}$`)
	diskName    = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._: -]{0,127}$`)
)

// fileSystems are the types a disk may be mounted as: file systems of the kernel on one
// device, none that starts another program.
var fileSystems = []string{"ext4", "ext3", "ext2", "xfs", "btrfs", "f2fs", "vfat"}

// otherDevice are options that name a device beside the one to be mounted.
var otherDevice = pattern.Lazy(`^(logdev|rtdev|journal_path|journal_dev|device)(=|$)`)

const (
	mostPortals = 16
	mostSecret  = 255
	mostLUN     = 255 // the API server's
)

func checkPortal(portal string) error {
	host, port, err := net.SplitHostPort(portal)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		return wrong("portal", portal, "host:port")
	}
	return checkHost("portal", host)
}

func checkISCSI(d *supervisorv1.ISCSIDisk) error {
	if n := len(d.GetPortals()); n == 0 || n > mostPortals {
		return rpc.Invalid.Errorf("portals: %d: want 1 to %d", n, mostPortals)
	}
	for _, portal := range d.GetPortals() {
		if err := checkPortal(portal); err != nil {
			return err
		}
	}
	switch {
	case !iscsiName().MatchString(d.GetTarget()):
		return wrong("target", d.GetTarget(), "an iqn., eui. or naa. name")
	case d.GetLun() > mostLUN:
		return rpc.Invalid.Errorf("lun: %d: want at most %d", d.GetLun(), mostLUN)
	case !iscsiRecord().MatchString(d.GetInterface()):
		return wrong("interface", d.GetInterface(), "the name of an interface record")
	case d.GetInitiatorName() == "":
		return nil
	case !iscsiName().MatchString(d.GetInitiatorName()):
		return wrong("initiator_name", d.GetInitiatorName(), "an iqn., eui. or naa. name")
	case !iscsiRecord().MatchString(record(d)):
		return wrong("volume", d.GetVolume(), "a name that an interface record can have")
	case record(d) == d.GetInterface():
		return wrong("interface", d.GetInterface(), "another record than its copy")
	}
	return nil
}

func checkFC(d *supervisorv1.FCDisk) error {
	if n := len(d.GetWwns()) + len(d.GetWwids()); n == 0 || n > mostPortals {
		return rpc.Invalid.Errorf("wwns, wwids: %d: want 1 to %d", n, mostPortals)
	}
	for _, name := range d.GetWwns() {
		if !worldwide().MatchString(name) {
			return wrong("wwns", name, "16 hexadecimal digits")
		}
	}
	for _, name := range d.GetWwids() {
		if !diskName().MatchString(name) {
			return wrong("wwids", name, "the name of a disk")
		}
	}
	if d.GetLun() > mostLUN {
		return rpc.Invalid.Errorf("lun: %d: want at most %d", d.GetLun(), mostLUN)
	}
	return nil
}

func checkDisk(d *supervisorv1.NetworkDisk) error {
	switch {
	case d.GetIscsi() != nil:
		return checkISCSI(d.GetIscsi())
	case d.GetFc() != nil:
		return checkFC(d.GetFc())
	}
	return rpc.Invalid.Errorf("disk: want one of iscsi and fc")
}

func checkCHAP(field string, c *supervisorv1.CHAP) error {
	for name, value := range map[string]string{
		"username": c.GetUsername(), "password": c.GetPassword(), "username_in": c.GetUsernameIn(), "password_in": c.GetPasswordIn(),
	} {
		if !plain(value) || strings.TrimSpace(value) != value || len(value) > mostSecret { // the error does not contain the value
			return rpc.Invalid.Errorf("%s.%s: want at most %d characters in one line, without spaces around them", field, name, mostSecret)
		}
	}
	return nil
}

func checkStage(r *supervisorv1.StageDiskRequest) error {
	if err := checkDisk(r.GetDisk()); err != nil {
		return err
	}
	if r.GetFsType() != "" && !slices.Contains(fileSystems, r.GetFsType()) {
		return wrong("fs_type", r.GetFsType(), "one of "+strings.Join(fileSystems, ", "))
	}
	if err := checkOptions(r.GetOptions(), "an option of a file system on one device", foreign(), otherDevice()); err != nil {
		return err
	}
	if err := checkCHAP("discovery", r.GetDiscovery()); err != nil {
		return err
	}
	return checkCHAP("session", r.GetSession())
}
