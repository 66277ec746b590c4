// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

const iqn = "iqn.2001-04.example:store"

// portal gives a portal a target with empty disks.
func (b *bench) portal(portal, target string, units ...string) {
	b.Helper()
	for _, unit := range units {
		put("", b.state, "targets", portal, target, unit)
	}
}

func iscsi(target string, lun uint32, portals ...string) *supervisorv1.NetworkDisk {
	return &supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Iscsi{Iscsi: &supervisorv1.ISCSIDisk{
		Portals: portals, Target: target, Lun: lun, Interface: "default", Volume: "v",
	}}}
}

func (b *bench) stage(r *supervisorv1.StageDiskRequest) *supervisorv1.StageDiskResponse {
	b.Helper()
	resp, err := b.StageDisk(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	return resp
}

func (b *bench) unstage(d *supervisorv1.NetworkDisk, keep bool) {
	b.Helper()
	if _, err := b.UnstageDisk(b.Context(), &supervisorv1.UnstageDiskRequest{Disk: d, KeepSession: keep}); err != nil {
		b.Fatal(err)
	}
}

// sessions that the machine has.
func (b *bench) sessions() int { return len(b.machine().list("sys/class/iscsi_session")) }

func TestStageISCSI(t *testing.T) {
	b := newBench(t)
	b.portal("10.0.0.1:3260", iqn, "0", "1")
	first, second := iscsi(iqn, 0, "10.0.0.1:3260"), iscsi(iqn, 1, "10.0.0.1:3260")
	at := b.stage(&supervisorv1.StageDiskRequest{Disk: first, Options: []string{"noatime"}}).GetPath()
	if want := filepath.Join(b.Root, "plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-"+iqn+"-lun-0"); at != want {
		t.Errorf("mounted at %s, want %s", at, want)
	}
	asked := b.asked()
	if i, j := slices.Index(asked, "mkfs.ext4 -F -m0 sdb0"), slices.IndexFunc(asked, func(line string) bool {
		return strings.HasPrefix(line, "mount -t ext4 -o noatime -o rw -o defaults -- ")
	}); i < 0 || j < i {
		t.Errorf("ran %s", strings.Join(asked, "\n"))
	}
	if got := b.stage(&supervisorv1.StageDiskRequest{Disk: first}).GetPath(); got != at || len(b.asked()) != len(asked) {
		t.Errorf("again: %s, ran %q", got, b.asked()[len(asked):])
	}
	if got := b.stage(&supervisorv1.StageDiskRequest{Disk: second, Block: true}).GetDevice(); got != string(b.machine().join("dev/sdb1")) {
		t.Errorf("device %s", got)
	}
	if b.sessions() != 1 {
		t.Errorf("%d sessions", b.sessions())
	}
	// The other disk is mounted: the session stays, whatever the caller knows.
	b.unstage(second, false)
	if got := b.machine().read("sys/block/sdb1/device/delete"); b.sessions() != 1 || got != "1" {
		t.Errorf("%d sessions, delete: %q", b.sessions(), got)
	}
	b.unstage(first, false)
	if _, err := os.Stat(at); !os.IsNotExist(err) || b.sessions() != 0 {
		t.Errorf("left: %v, %d sessions", err, b.sessions())
	}
	b.unstage(first, false) // there is nothing
	b.stage(&supervisorv1.StageDiskRequest{Disk: first})
	if !slices.Contains(b.asked(), "fsck -a sdb0") {
		t.Errorf("a disk with something on it was not checked: %s", strings.Join(b.asked(), "\n"))
	}
	if n := strings.Count(strings.Join(b.asked(), "\n"), "mkfs"); n != 1 {
		t.Errorf("formatted %d times", n)
	}
	b.unstage(first, false)
}

// TestNeverFormatted: what has anything on it is not formatted, nor what is read only or
// used.
func TestNeverFormatted(t *testing.T) {
	for name, c := range map[string]struct {
		content, used, want string
		readOnly            bool
	}{
		"partitions":   {content: "PTTYPE=gpt\n", want: "wrong fs type"},
		"another kind": {content: "TYPE=xfs\n", want: "wrong fs type"},
		"LVM":          {content: "TYPE=LVM2_member\n", want: "wrong fs type"},
		"read only":    {want: "cannot mount unformatted disk", readOnly: true},
		"mounted":      {used: "mountinfo", want: "is not free: mounted at /data"},
		"part of LVM":  {used: "holder", want: "is not free: part of dm-3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.portal("10.0.0.1:3260", iqn, "0")
			put(c.content, b.state, "targets/10.0.0.1:3260", iqn, "0")
			switch c.used {
			case "mountinfo":
				put("1 1 8:10 / /data rw - xfs /dev/sdb0 rw\n", b.state, "host/proc/self/mountinfo")
			case "holder":
				put("LVM-x", b.state, "host/sys/block/dm-3/dm/uuid")
				must(os.MkdirAll(filepath.Join(b.state, "host/sys/block/sdb0/holders/dm-3"), 0o755))
			}
			r := &supervisorv1.StageDiskRequest{Disk: iscsi(iqn, 0, "10.0.0.1:3260"), ReadOnly: c.readOnly}
			_, err := b.StageDisk(t.Context(), r)
			if !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if strings.Contains(strings.Join(b.asked(), "\n"), "mkfs") {
				t.Errorf("formatted: %q", b.asked())
			}
			text, err := os.ReadFile(filepath.Join(b.state, "targets/10.0.0.1:3260", iqn, "0"))
			if err != nil || string(text) != c.content {
				t.Errorf("on the disk: %q, %v", text, err)
			}
		})
	}
}

// TestSlowCheck: a check of a disk that its caller does not wait for, or that outlives its
// caller, comes to its end, and the disk has its next turn then.
func TestSlowCheck(t *testing.T) {
	b := newBench(t)
	b.portal("10.0.0.1:3260", iqn, "0")
	put("TYPE=ext4\n", b.state, "targets/10.0.0.1:3260", iqn, "0")
	slow := filepath.Join(b.state, "slow")
	must(unix.Mkfifo(slow, 0o600))
	way, err := os.OpenFile(slow, os.O_RDWR, 0)
	must(err)
	defer way.Close() //nolint:errcheck // nothing is kept in it
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	await := func(line string) {
		t.Helper()
		for limit := time.Now().Add(20 * time.Second); !slices.Contains(b.asked(), line); <-again.C {
			if time.Now().After(limit) {
				t.Fatalf("there is no %q in %q", line, b.asked())
			}
		}
	}
	d := iscsi(iqn, 0, "10.0.0.1:3260")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := b.StageDisk(ctx, &supervisorv1.StageDiskRequest{Disk: d})
		failed <- err
	}()
	await("fsck -a sdb0")
	cancel()
	if err := <-failed; err == nil {
		t.Error("no error")
	}
	_, err = way.WriteString("x")
	must(err)
	await("fsck ends")
	b.stage(&supervisorv1.StageDiskRequest{Disk: d})
	b.unstage(d, false)
}

// TestMultipath: two portals, and one of two that does not answer.
func TestMultipath(t *testing.T) {
	b := newBench(t)
	b.portal("10.0.0.1:3260", iqn, "0")
	b.portal("10.0.0.2:3260", iqn, "0")
	d := iscsi(iqn, 0, "10.0.0.1:3260", "10.0.0.2:3260")
	put("mpath-3600", b.state, "host/sys/block/dm-7/dm/uuid")
	must(os.MkdirAll(filepath.Join(b.state, "host/sys/block/sdc0/holders/dm-7"), 0o755))
	if got := b.stage(&supervisorv1.StageDiskRequest{Disk: d, Block: true}).GetDevice(); filepath.Base(got) != "dm-7" || b.sessions() != 2 {
		t.Errorf("device %s, %d sessions", got, b.sessions())
	}
	b.unstage(d, false)
	if asked := b.asked(); b.sessions() != 0 || !slices.Contains(asked, "multipath -f dm-7") {
		t.Errorf("%d sessions, ran %q", b.sessions(), asked)
	}
	half := iscsi(iqn, 0, "10.0.0.1:3260", "10.0.0.9:3260")
	if got := b.stage(&supervisorv1.StageDiskRequest{Disk: half, Block: true}).GetDevice(); filepath.Base(got) != "sdb0" {
		t.Errorf("with one portal: %s", got)
	}
}

// TestCHAP: credentials reach iscsiadm's records, and neither arguments nor errors.
func TestCHAP(t *testing.T) {
	b := newBench(t)
	const target = "iqn.2001-04.example:guarded"
	b.portal("10.0.0.8:3260", target, "0")
	r := &supervisorv1.StageDiskRequest{Disk: iscsi(target, 0, "10.0.0.8:3260"), Block: true}
	_, err := b.StageDisk(t.Context(), r)
	if !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "ask portal 10.0.0.8:3260 for its targets: iscsiadm: initiator reported error (24") {
		t.Errorf("without: %v", err)
	}
	r.Discovery = &supervisorv1.CHAP{Username: "me", Password: "open sesame"}
	r.Session = &supervisorv1.CHAP{Username: "me", Password: "wrong-of-session"}
	_, err = b.StageDisk(t.Context(), r)
	if !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "log in to target "+target) || strings.Contains(err.Error(), "wrong-of") {
		t.Errorf("a wrong one: %v", err)
	}
	r.Session.Password = "secret-of-session"
	b.stage(r)
	for _, line := range b.asked() {
		if strings.Contains(line, "sesame") || strings.Contains(line, "of-session") {
			t.Errorf("in arguments: %s", line)
		}
	}
	record := filepath.Join(b.state, "host/etc/iscsi/nodes", target, "10.0.0.8,3260,1/default")
	if info, err := os.Stat(record); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("record: %v, %v", info, err)
	}
	b.unstage(r.GetDisk(), false)
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Errorf("the record is left: %v", err)
	}
}

// TestInitiatorName: an interface record of the volume's own, and its end.
func TestInitiatorName(t *testing.T) {
	b := newBench(t)
	b.portal("10.0.0.1:3260", iqn, "0")
	d := iscsi(iqn, 0, "10.0.0.1:3260")
	d.GetIscsi().InitiatorName = "iqn.2001-04.example:pod"
	b.stage(&supervisorv1.StageDiskRequest{Disk: d, Block: true})
	record := filepath.Join(b.state, "host/etc/iscsi/ifaces/10.0.0.1:3260:v")
	text, err := os.ReadFile(record)
	if want := "iface.iscsi_ifacename = 10.0.0.1:3260:v\niface.initiatorname = iqn.2001-04.example:pod\niface.transport_name = tcp\n"; err != nil || string(text) != want {
		t.Errorf("record %q, %v", text, err)
	}
	b.unstage(d, false)
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Errorf("the record is left: %v", err)
	}
}

func TestNoDevice(t *testing.T) {
	b := newBench(t)
	b.runner.patience = 300 * time.Millisecond
	b.portal("10.0.0.1:3260", iqn, "0")
	_, err := b.StageDisk(t.Context(), &supervisorv1.StageDiskRequest{Disk: iscsi(iqn, 5, "10.0.0.1:3260"), Block: true})
	if !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "no device for unit 5 after 300ms") {
		t.Errorf("no such unit: %v", err)
	}
	if got := b.machine().read("sys/class/scsi_host/host1/scan"); got != "0 0 5" {
		t.Errorf("asked the kernel for %q", got)
	}
	if err := os.Remove(filepath.Join(b.state, "bin/iscsiadm")); err != nil {
		t.Fatal(err)
	}
	_, err = b.StageDisk(t.Context(), &supervisorv1.StageDiskRequest{Disk: iscsi(iqn, 0, "10.0.0.1:3260")})
	if !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "iscsiadm is not installed on this node (Debian: package open-iscsi)") {
		t.Errorf("without the tool: %v", err)
	}
}

// TestFC: by the ports' names and by the disk's.
func TestFC(t *testing.T) {
	b := newBench(t)
	b.runner.patience = 300 * time.Millisecond
	fc := func(f *supervisorv1.FCDisk) *supervisorv1.NetworkDisk {
		return &supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Fc{Fc: f}}
	}
	byPort := fc(&supervisorv1.FCDisk{Wwns: []string{"500A0981891b8dc5"}, Lun: 2})
	block := func(d *supervisorv1.NetworkDisk) (string, error) {
		resp, err := b.StageDisk(t.Context(), &supervisorv1.StageDiskRequest{Disk: d, Block: true})
		return filepath.Base(resp.GetDevice()), err
	}
	if _, err := block(byPort); !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "sees no FC port of the names [500A0981891b8dc5]") {
		t.Errorf("no port: %v", err)
	}
	sys := filepath.Join(b.state, "host/sys")
	put("0x500a0981891b8dc5\n", sys, "class/fc_remote_ports/rport-4:0-1/port_name")
	put("3\n", sys, "class/fc_remote_ports/rport-4:0-1/scsi_target_id")
	put("", sys, "class/scsi_host/host4/scan")
	if _, err := block(byPort); !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "no device for unit 2") {
		t.Errorf("no device: %v", err)
	}
	if got := b.machine().read("sys/class/scsi_host/host4/scan"); got != "0 3 2" {
		t.Errorf("asked the kernel for %q", got)
	}
	must(os.MkdirAll(filepath.Join(sys, "class/scsi_device/4:0:3:2/device/block/sdq"), 0o755))
	put("", sys, "block/sdq/device/delete")
	if got, err := block(byPort); err != nil || got != "sdq" {
		t.Errorf("by its port: %s, %v", got, err)
	}
	byName := fc(&supervisorv1.FCDisk{Wwids: []string{"3600508b400105e21 x"}})
	put("", b.state, "host/dev/sdq")
	must(os.MkdirAll(filepath.Join(b.state, "host/dev/disk/by-id"), 0o755))
	must(os.Symlink("../../sdq", filepath.Join(b.state, "host/dev/disk/by-id/scsi-3600508b400105e21_x")))
	if got, err := block(byName); err != nil || got != "sdq" {
		t.Errorf("by its name: %s, %v", got, err)
	}
	put("1 1 8:99 / /other rw - ext4 /dev/sdq rw\n", b.state, "host/proc/self/mountinfo")
	put("8:99", sys, "block/sdq/dev")
	if _, err := b.UnstageDisk(t.Context(), &supervisorv1.UnstageDiskRequest{Disk: byPort}); !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "device sdq is still used: mounted at /other") {
		t.Errorf("used: %v", err)
	}
	put("", b.state, "host/proc/self/mountinfo")
	b.unstage(byPort, false)
	if got := b.machine().read("sys/block/sdq/device/delete"); got != "1" {
		t.Errorf("delete: %q", got)
	}
}

func TestChecksDisk(t *testing.T) {
	good := func() *supervisorv1.StageDiskRequest {
		return &supervisorv1.StageDiskRequest{Disk: iscsi(iqn, 0, "[fd00::1]:3260", "store.example:860"), FsType: "xfs", Options: []string{"noatime"}}
	}
	if err := checkStage(good()); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(r *supervisorv1.StageDiskRequest, i *supervisorv1.ISCSIDisk){
		"portals":        func(_ *supervisorv1.StageDiskRequest, i *supervisorv1.ISCSIDisk) { i.Portals = nil },
		"portal":         func(_ *supervisorv1.StageDiskRequest, i *supervisorv1.ISCSIDisk) { i.Portals[1] = "-o:3260" },
		"target":         func(_ *supervisorv1.StageDiskRequest, i *supervisorv1.ISCSIDisk) { i.Target = "iqn.2001-04.x:../../y" },
		"lun":            func(_ *supervisorv1.StageDiskRequest, i *supervisorv1.ISCSIDisk) { i.Lun = 256 },
		"interface":      func(_ *supervisorv1.StageDiskRequest, i *supervisorv1.ISCSIDisk) { i.Interface = "../x" },
		"initiator_name": func(_ *supervisorv1.StageDiskRequest, i *supervisorv1.ISCSIDisk) { i.InitiatorName = "me" },
		"volume": func(_ *supervisorv1.StageDiskRequest, i *supervisorv1.ISCSIDisk) {
			i.InitiatorName, i.Volume = iqn, "a/b"
		},
		"fs_type": func(r *supervisorv1.StageDiskRequest, _ *supervisorv1.ISCSIDisk) { r.FsType = "fuse.sshfs" },
		"options": func(r *supervisorv1.StageDiskRequest, _ *supervisorv1.ISCSIDisk) {
			r.Options = []string{"logdev=/dev/sda"}
		},
		"disk": func(r *supervisorv1.StageDiskRequest, _ *supervisorv1.ISCSIDisk) { r.Disk = nil },
		"wwns": func(r *supervisorv1.StageDiskRequest, _ *supervisorv1.ISCSIDisk) {
			r.Disk = &supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Fc{Fc: &supervisorv1.FCDisk{Wwns: []string{"../x"}}}}
		},
		"wwids": func(r *supervisorv1.StageDiskRequest, _ *supervisorv1.ISCSIDisk) {
			r.Disk = &supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Fc{Fc: &supervisorv1.FCDisk{Wwids: []string{"../x"}}}}
		},
		"session.password": func(r *supervisorv1.StageDiskRequest, _ *supervisorv1.ISCSIDisk) {
			r.Session = &supervisorv1.CHAP{Password: "x\nnode.startup = automatic"}
		},
	} {
		r := good()
		edit(r, r.GetDisk().GetIscsi())
		if err := checkStage(r); !rpc.Is(err, rpc.Invalid) || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), "startup") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetParams(t *testing.T) {
	record := "# BEGIN RECORD 2.1.8\nnode.name = n\nnode.session.auth.authmethod = None\nnode.session.auth.username = old\n# END RECORD\n"
	got := setParams(record, chapParams("node.session.auth", &supervisorv1.CHAP{Username: "me", Password: "a = b # c"}))
	want := "# BEGIN RECORD 2.1.8\nnode.name = n\nnode.session.auth.authmethod = CHAP\nnode.session.auth.username = me\n" +
		"node.session.auth.password = a = b # c\n# END RECORD\n"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
