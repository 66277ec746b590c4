// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The machine of these tests is a folder with what sysfs would show, and programs that
// change it: iscsiadm opens and ends sessions of the targets that are folders of
// targets/, named by portal, target and unit; a disk is a file.

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func put(text string, parts ...string) {
	name := filepath.Join(parts...)
	must(os.MkdirAll(filepath.Dir(name), 0o755))
	must(os.WriteFile(name, []byte(text), 0o644))
}

func flag(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func failing(code int, text string) int {
	fmt.Fprintln(os.Stderr, "iscsiadm: "+text)
	return code
}

// fakeISCSIAdm is iscsiadm(8): records are files as its own are.
func fakeISCSIAdm(state string, args []string) int {
	note(state, "iscsiadm "+strings.Join(args, " "))
	op, portal, target, iface := flag(args, "-o"), flag(args, "-p"), flag(args, "-T"), flag(args, "-I")
	db := filepath.Join(state, "host/etc/iscsi")
	switch args[1] {
	case "iface":
		name := filepath.Join(db, "ifaces", iface)
		switch op {
		case "show":
			if iface == "default" {
				fmt.Println("# BEGIN RECORD\niface.iscsi_ifacename = default\niface.transport_name = tcp\niface.initiatorname = <empty>")
				return 0
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return failing(nothingFound, "Could not read iface "+iface)
			}
			fmt.Print(string(text))
		case "new":
			put("iface.iscsi_ifacename = "+iface+"\n", name)
		case "update":
			text, err := os.ReadFile(name)
			must(err)
			put(string(text)+flag(args, "-n")+" = "+flag(args, "-v")+"\n", name)
		case "delete":
			must(os.Remove(name))
		}
		return 0
	case "discoverydb":
		record := filepath.Join(db, "send_targets", address(portal), "st_config")
		if op == "new" {
			put("# BEGIN RECORD 2.1.8\ndiscovery.sendtargets.auth.authmethod = None\n# END RECORD\n", record)
		}
		if slices.Contains(args, "--discover") {
			text, err := os.ReadFile(record)
			must(err)
			if portal == "10.0.0.8:3260" && !strings.Contains(string(text), "auth.password = open sesame\n") {
				return failing(24, "initiator reported error (24 - iSCSI login failed due to authorization failure)")
			}
			found, err := os.ReadDir(filepath.Join(state, "targets", portal))
			if err != nil {
				return failing(4, "cannot make connection to "+portal)
			}
			for _, t := range found {
				put("# BEGIN RECORD 2.1.8\nnode.name = "+t.Name()+"\nnode.session.auth.authmethod = None\n# END RECORD\n", db, "nodes", t.Name(), address(portal)+",1", iface)
			}
		}
		return 0
	}
	switch {
	case slices.Contains(args, "--login"):
		text, err := os.ReadFile(filepath.Join(db, "nodes", target, address(portal)+",1", iface))
		if err != nil {
			return failing(nothingFound, "No records found")
		}
		if strings.HasSuffix(target, ":guarded") && !strings.Contains(string(text), "node.session.auth.password = secret-of-session\n") {
			return failing(24, "initiator reported error (24 - iSCSI login failed due to authorization failure)")
		}
		openSession(state, portal, target, iface)
	case slices.Contains(args, "--logout"):
		return closeSessions(state, target, iface)
	case op == "delete":
		must(os.RemoveAll(filepath.Join(db, "nodes", target)))
	}
	return 0
}

// openSession shows a session and its disks.
func openSession(state, portal, target, iface string) {
	sys := filepath.Join(state, "host/sys")
	number := 1
	for ; ; number++ {
		if _, err := os.Stat(filepath.Join(sys, "class/iscsi_session", fmt.Sprint("session", number))); err != nil {
			break
		}
	}
	session, scsi := fmt.Sprint("session", number), fmt.Sprint("host", number)
	put(target+"\n", sys, "class/iscsi_session", session, "targetname")
	put(iface+"\n", sys, "class/iscsi_session", session, "ifacename")
	device := filepath.Join(sys, "devices/platform", scsi, session)
	must(os.MkdirAll(device, 0o755))
	must(os.Symlink(device, filepath.Join(sys, "class/iscsi_session", session, "device")))
	host, port, _ := strings.Cut(portal, ":")
	put(host, sys, "class/iscsi_connection", fmt.Sprintf("connection%d:0", number), "persistent_address")
	put(port, sys, "class/iscsi_connection", fmt.Sprintf("connection%d:0", number), "persistent_port")
	put("", sys, "class/scsi_host", scsi, "scan")
	units, err := os.ReadDir(filepath.Join(state, "targets", portal, target))
	must(err)
	for _, u := range units {
		name := fmt.Sprintf("sd%c%s", 'a'+number, u.Name())
		must(os.MkdirAll(filepath.Join(device, fmt.Sprintf("target%d:0:0/%d:0:0:%s/block/%s", number, number, u.Name(), name)), 0o755))
		put(fmt.Sprintf("8:%d%s\n", number, u.Name()), sys, "block", name, "dev")
		put("", sys, "block", name, "device/delete")
		must(os.MkdirAll(filepath.Join(state, "host/dev"), 0o755))
		must(os.Symlink(filepath.Join(state, "targets", portal, target, u.Name()), filepath.Join(state, "host/dev", name)))
	}
}

func closeSessions(state, target, iface string) int {
	h := host(filepath.Join(state, "host"))
	ended := sessionNotFound
	for _, name := range h.list("sys/class/iscsi_session") {
		if h.read("sys/class/iscsi_session", name, "targetname") != target || h.read("sys/class/iscsi_session", name, "ifacename") != iface {
			continue
		}
		dir, err := filepath.EvalSymlinks(string(h.join("sys/class/iscsi_session", name, "device")))
		must(err)
		for _, device := range (session{dir: dir}).devices("*") {
			must(os.RemoveAll(string(h.join("sys/block", device))))
			must(os.Remove(string(h.join("dev", device))))
		}
		must(os.RemoveAll(filepath.Dir(dir)))
		must(os.RemoveAll(string(h.join("sys/class/iscsi_session", name))))
		ended = 0
	}
	if ended != 0 {
		return failing(ended, "No matching sessions found")
	}
	return 0
}

// fakeBlkid is blkid(8): a disk's file says what is on it.
func fakeBlkid(state string, args []string) int {
	note(state, "blkid "+filepath.Base(args[len(args)-1]))
	text, err := os.ReadFile(args[len(args)-1])
	must(err)
	if len(text) == 0 {
		return 2
	}
	fmt.Print(string(text))
	return 0
}

func fakeMkfs(state string, args []string) int {
	note(state, "mkfs.ext4 "+strings.Join(args[:len(args)-1], " ")+" "+filepath.Base(args[len(args)-1]))
	must(os.WriteFile(args[len(args)-1], []byte("TYPE=ext4\n"), 0o644))
	return 0
}

// fakeFsck takes as long as it takes until a byte comes by the pipe, if there is one.
func fakeFsck(state string, args []string) int {
	note(state, "fsck "+args[0]+" "+filepath.Base(args[1]))
	if way, err := os.Open(filepath.Join(state, "slow")); err == nil {
		_, err = way.Read(make([]byte, 1))
		must(errors.Join(err, way.Close(), os.Remove(way.Name())))
		note(state, "fsck ends")
	}
	return 0
}

// mountDisk mounts a disk as mount(8) does: memory stands for what is on it.
func mountDisk(state string, args []string) int {
	source, target := args[len(args)-2], args[len(args)-1]
	text, err := os.ReadFile(source)
	must(err)
	if string(text) != "TYPE="+args[1]+"\n" {
		fmt.Fprintln(os.Stderr, "mount: "+target+": wrong fs type, bad option, bad superblock on "+source)
		return 32
	}
	must(unix.Mount("disk", target, "tmpfs", 0, ""))
	number := host(filepath.Join(state, "host")).read("sys/block", filepath.Base(source), "dev")
	put(fmt.Sprintf("1 1 %s / %s rw - ext4 %s rw\n", number, target, source), state, "host/proc/self/mountinfo")
	return 0
}

func fakeUmount(state string, args []string) int {
	note(state, "umount")
	must(unix.Unmount(args[1], 0))
	put("", state, "host/proc/self/mountinfo")
	return 0
}

func fakeMultipath(state string, args []string) int {
	note(state, "multipath "+args[0]+" "+filepath.Base(args[1]))
	must(os.RemoveAll(filepath.Join(state, "host/sys/block", filepath.Base(args[1]))))
	return 0
}
