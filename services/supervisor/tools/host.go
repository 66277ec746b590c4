// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// host is the machine's root folder. Only sysfs and procfs are read here, which do not
// hang with a device.
type host string

func (h host) join(parts ...string) host {
	return host(filepath.Join(append([]string{string(h)}, parts...)...))
}

// read is the text of a small file, "" if it is missing.
func (h host) read(parts ...string) string {
	text, err := os.ReadFile(string(h.join(parts...)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// session is one iSCSI session.
type session struct {
	// dir is its device's folder: <host>/session<n>.
	dir string
	// scsiHost is its SCSI host, host<n>.
	scsiHost string
	// portal that it was opened to, host:port.
	portal string
}

// sessions to a target by an interface record.
func (h host) sessions(target, iface string) []session {
	const class = "sys/class/iscsi_session"
	var all []session
	for _, name := range h.list(class) {
		if h.read(class, name, "targetname") != target {
			continue
		}
		if by := h.read(class, name, "ifacename"); by != "" && by != iface {
			continue
		}
		dir, err := filepath.EvalSymlinks(string(h.join(class, name, "device")))
		if err != nil {
			continue // it has just ended
		}
		s := session{dir: dir, scsiHost: filepath.Base(filepath.Dir(dir))}
		connection := path.Join("sys/class/iscsi_connection", "connection"+strings.TrimPrefix(name, "session")+":0")
		if address := h.read(connection, "persistent_address"); address != "" {
			s.portal = net.JoinHostPort(address, h.read(connection, "persistent_port"))
		}
		all = append(all, s)
	}
	return all
}

// devices are the names of a session's disks with a LUN, "*" for all.
func (s session) devices(lun string) (names []string) {
	found, err := filepath.Glob(filepath.Join(s.dir, "target*", "*:*:*:"+lun, "block", "*"))
	if err != nil {
		return nil
	}
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	return names
}

// list are the names in a folder, sorted.
func (h host) list(parts ...string) (names []string) {
	entries, err := os.ReadDir(string(h.join(parts...)))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// port is an FC port that this machine sees: channel, id of the SCSI target and the
// number of the host.
type port struct{ host, channel, id string }

// ports are those with a worldwide name.
func (h host) ports(wwn string) (all []port) {
	const class = "sys/class/fc_remote_ports"
	for _, name := range h.list(class) { // rport-<host>:<channel>-<number>
		if bare(h.read(class, name, "port_name")) != bare(wwn) {
			continue
		}
		id := h.read(class, name, "scsi_target_id")
		at, _, _ := strings.Cut(strings.TrimPrefix(name, "rport-"), "-")
		number, channel, ok := strings.Cut(at, ":")
		if ok && id != "" && id != "-1" { // it is no target
			all = append(all, port{number, channel, id})
		}
	}
	return all
}

// bare is a worldwide name without 0x, in lower case.
func bare(wwn string) string { return strings.TrimPrefix(strings.ToLower(wwn), "0x") }

// paths are the devices that lead to a disk, by name, sorted.
func (h host) paths(disk *supervisorv1.NetworkDisk) (names []string) {
	lun := itoa(unit(disk))
	switch i, f := disk.GetIscsi(), disk.GetFc(); {
	case i != nil:
		for _, s := range h.sessions(i.GetTarget(), record(i)) {
			names = append(names, s.devices(lun)...)
		}
	case len(f.GetWwns()) > 0:
		for _, wwn := range f.GetWwns() {
			for _, p := range h.ports(wwn) {
				names = append(names, h.list("sys/class/scsi_device", strings.Join([]string{p.host, p.channel, p.id, lun}, ":"), "device/block")...)
			}
		}
	default:
		for _, wwid := range f.GetWwids() {
			link, err := filepath.EvalSymlinks(string(h.join("dev/disk/by-id", "scsi-"+strings.ReplaceAll(wwid, " ", "_"))))
			if err != nil {
				continue
			}
			name := filepath.Base(link)
			if members := h.list("sys/block", name, "slaves"); h.isMultipath(name) {
				names = append(names, members...)
			} else {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (h host) isMultipath(name string) bool {
	return strings.HasPrefix(h.read("sys/block", name, "dm/uuid"), "mpath-")
}

// multipath is the device that multipathd made of others, "" for none.
func (h host) multipath(paths []string) string {
	for _, name := range paths {
		for _, holder := range h.list("sys/block", name, "holders") {
			if h.isMultipath(holder) {
				return holder
			}
		}
	}
	return ""
}

// users lists what uses a device or a partition of it: mounts, swap and other devices
// made of it. The multipath device does not count: it is the same disk.
func (h host) users(name string) (all []string) {
	parts := []string{name}
	for _, entry := range h.list("sys/block", name) {
		if strings.HasPrefix(entry, name) {
			parts = append(parts, filepath.Join(name, entry))
		}
	}
	table, swaps := h.read("proc/self/mountinfo"), h.read("proc/swaps")
	for _, part := range parts {
		if number := h.read("sys/block", part, "dev"); number != "" {
			for line := range strings.Lines(table) {
				if f := strings.Fields(line); len(f) > 4 && f[2] == number {
					all = append(all, "mounted at "+f[4])
				}
			}
		}
		for _, holder := range h.list("sys/block", part, "holders") {
			if !h.isMultipath(holder) {
				all = append(all, "part of "+holder)
			}
		}
		for line := range strings.Lines(swaps) {
			if f := strings.Fields(line); len(f) > 0 && f[0] == "/dev/"+filepath.Base(part) {
				all = append(all, "swap")
			}
		}
	}
	return all
}

func unit(d *supervisorv1.NetworkDisk) uint32 { return d.GetIscsi().GetLun() + d.GetFc().GetLun() }

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// record is the interface record that a disk is connected by.
func record(i *supervisorv1.ISCSIDisk) string {
	if i.GetInitiatorName() == "" {
		return i.GetInterface()
	}
	return i.GetPortals()[0] + ":" + i.GetVolume()
}

// address of a portal as iscsiadm has it in the names of files: <address>,<port>.
func address(portal string) string {
	host, port, err := net.SplitHostPort(portal)
	if err != nil {
		return portal
	}
	return host + "," + port
}
