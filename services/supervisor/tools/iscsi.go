// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// Exit codes of iscsiadm (include/iscsi_err.h of open-iscsi).
const (
	sessionNotFound = 2
	sessionExists   = 15
	nothingFound    = 21
)

// portalLimit is how long one of several portals may take: the others may answer.
const portalLimit = time.Minute

// exited reports whether a tool ended with one of these codes.
func exited(err error, codes ...int) bool {
	var failed *failure
	return errors.As(err, &failed) && slices.Contains(codes, failed.code)
}

// connect opens a session to each portal and scans for the unit. One portal that
// answers is enough; it returns how many did.
func (d *disks) connect(i *supervisorv1.ISCSIDisk, r *supervisorv1.StageDiskRequest) (sessions int, err error) {
	if err := d.interfaceRecord(i); err != nil {
		return 0, err
	}
	there := map[string]bool{}
	for _, s := range d.host.sessions(i.GetTarget(), record(i)) {
		there[s.portal] = true
	}
	var failed error
	for _, portal := range i.GetPortals() {
		if there[portal] {
			continue
		}
		p := d
		if len(i.GetPortals()) > 1 {
			ctx, cancel := context.WithTimeout(d.ctx, portalLimit)
			defer cancel()
			// A tool that does not end when killed keeps the turn of the whole request.
			part := &tools{r: d.r, ctx: ctx}
			defer func() { d.stuck = append(d.stuck, part.stuck...) }()
			p = &disks{tools: part, host: d.host}
		}
		if err := p.discover(i, portal, r.GetDiscovery()); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		failed = errors.Join(failed, p.login(i, portal, r.GetSession()))
	}
	all := d.host.sessions(i.GetTarget(), record(i))
	if len(all) == 0 {
		if failed == nil {
			failed = rpc.Conflict.Errorf("iscsiadm says that it logged in to target %s, but there is no session", i.GetTarget())
		}
		return 0, failed
	}
	if failed != nil {
		d.r.log.Warn("not every portal of the target answers", "target", i.GetTarget(), "error", failed.Error())
	}
	for _, s := range all {
		if len(s.devices(itoa(i.GetLun()))) > 0 {
			continue
		}
		// channel, target and unit
		if err := d.write(string(d.host.join("sys/class/scsi_host", s.scsiHost, "scan")), "0 0 "+itoa(i.GetLun())); err != nil {
			return 0, said("look for unit "+itoa(i.GetLun())+" of target "+i.GetTarget(), err)
		}
	}
	return len(all), nil
}

// interfaceRecord creates the interface record to connect by.
func (d *disks) interfaceRecord(i *supervisorv1.ISCSIDisk) error {
	out, err := d.run("iscsiadm", "-m", "iface", "-I", i.GetInterface(), "-o", "show")
	if err != nil {
		return said("read interface record "+i.GetInterface(), err)
	}
	if i.GetInitiatorName() == "" {
		return nil
	}
	params, name := interfaceParams(out), record(i)
	// An existing record is not changed: a session may use it.
	if have, err := d.run("iscsiadm", "-m", "iface", "-I", name, "-o", "show"); err == nil &&
		interfaceParams(have)["iface.initiatorname"] == i.GetInitiatorName() {
		return nil
	}
	if _, err := d.run("iscsiadm", "-m", "iface", "-I", name, "-o", "new"); err != nil && !exited(err, sessionExists) {
		return said("make interface record "+name, err)
	}
	params["iface.initiatorname"] = i.GetInitiatorName()
	delete(params, "iface.iscsi_ifacename") // it has one of its own
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if _, err := d.run("iscsiadm", "-m", "iface", "-I", name, "-o", "update", "-n", key, "-v", params[key]); err != nil {
			_, gone := d.run("iscsiadm", "-m", "iface", "-I", name, "-o", "delete")
			return errors.Join(said("update interface record "+name, err), gone)
		}
	}
	return nil
}

var interfaceParam = pattern.Lazy(`(?m)^(iface\.\S+) = (\S+)$`)

// interfaceParams are what iscsiadm shows of an interface; <empty> ones are left out.
func interfaceParams(shown string) map[string]string {
	params := map[string]string{}
	for _, m := range interfaceParam().FindAllStringSubmatch(shown, -1) {
		if m[2] != "<empty>" {
			params[m[1]] = m[2]
		}
	}
	return params
}

// discover asks a portal for its targets; iscsiadm makes their records.
func (d *disks) discover(i *supervisorv1.ISCSIDisk, portal string, chap *supervisorv1.CHAP) error {
	db := func(more ...string) []string {
		return append([]string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", record(i)}, more...)
	}
	if _, err := d.run("iscsiadm", db("-o", "new")...); err != nil && !exited(err, sessionExists) {
		return said("make a discovery record of portal "+portal, err)
	}
	if chap != nil {
		if err := d.host.keepDiscoverySecret(portal, chap); err != nil {
			return err
		}
	}
	if _, err := d.run("iscsiadm", db("--discover")...); err != nil {
		_, gone := d.run("iscsiadm", db("-o", "delete")...)
		if exited(gone, nothingFound) {
			gone = nil
		}
		return errors.Join(said("ask portal "+portal+" for its targets", err), gone)
	}
	return nil
}

// login opens the session.
func (d *disks) login(i *supervisorv1.ISCSIDisk, portal string, chap *supervisorv1.CHAP) error {
	node := func(more ...string) []string {
		return append([]string{"-m", "node", "-p", portal, "-T", i.GetTarget(), "-I", record(i)}, more...)
	}
	// Manual scan: only the requested unit appears, not those of other pods. Manual
	// startup: after a reboot there is no session until a pod needs it.
	for key, value := range map[string]string{"node.session.scan": "manual", "node.startup": "manual"} {
		if out, err := d.run("iscsiadm", node("-o", "update", "-n", key, "-v", value)...); err != nil {
			d.r.log.Warn("iscsiadm did not change a setting", "what", key, "target", i.GetTarget(), "output", out)
		}
	}
	if chap != nil {
		if err := d.host.keepSessionSecret(i.GetTarget(), record(i), chap); err != nil {
			return err
		}
	}
	if _, err := d.run("iscsiadm", node("--login")...); err != nil && !exited(err, sessionExists) {
		_, gone := d.run("iscsiadm", node("-o", "delete")...)
		if exited(gone, nothingFound) {
			gone = nil
		}
		return errors.Join(said("log in to target "+i.GetTarget()+" at portal "+portal, err), gone)
	}
	return nil
}

// logout ends the sessions of a target and deletes its records, with the secrets in
// them.
func (d *disks) logout(i *supervisorv1.ISCSIDisk) error {
	node := []string{"-m", "node", "-T", i.GetTarget(), "-I", record(i)}
	type step struct {
		what string
		args []string
	}
	steps := []step{
		{"log out of target " + i.GetTarget(), append(slices.Clone(node), "--logout")},
		{"forget target " + i.GetTarget(), append(slices.Clone(node), "-o", "delete")},
	}
	if i.GetInitiatorName() != "" {
		steps = append(steps, step{"forget interface record " + record(i), []string{"-m", "iface", "-I", record(i), "-o", "delete"}})
	}
	for _, s := range steps {
		if _, err := d.run("iscsiadm", s.args...); err != nil && !exited(err, sessionNotFound, nothingFound) {
			return said(s.what, err)
		}
	}
	if len(d.host.sessions(i.GetTarget(), record(i))) > 0 {
		return rpc.Conflict.Errorf("iscsiadm says that it logged out of target %s, but there is a session still", i.GetTarget())
	}
	return nil
}

// lookForFC has the FC hosts scan for a disk; it returns the number of paths to it.
func (d *disks) lookForFC(f *supervisorv1.FCDisk) (ways int, err error) {
	if len(f.GetWwns()) == 0 {
		if len(d.host.paths(&supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Fc{Fc: f}})) > 0 {
			return 1, nil
		}
		hosts := d.host.list("sys/class/fc_host")
		if len(hosts) == 0 {
			return 0, rpc.Conflict.Errorf("this node has no FC host (/sys/class/fc_host)")
		}
		for _, name := range hosts {
			if err := d.write(string(d.host.join("sys/class/scsi_host", name, "scan")), "- - -"); err != nil {
				return 0, said("have "+name+" look for disks", err)
			}
		}
		return 1, nil
	}
	for _, wwn := range f.GetWwns() {
		for _, p := range d.host.ports(wwn) {
			ways++
			if len(d.host.list("sys/class/scsi_device", p.host+":"+p.channel+":"+p.id+":"+itoa(f.GetLun()))) > 0 {
				continue
			}
			text := p.channel + " " + p.id + " " + itoa(f.GetLun())
			if err := d.write(string(d.host.join("sys/class/scsi_host", "host"+p.host, "scan")), text); err != nil {
				return 0, said("have host"+p.host+" look for disks", err)
			}
		}
	}
	if ways == 0 {
		return 0, rpc.Conflict.Errorf("this node sees no FC port of the names %v", f.GetWwns())
	}
	return ways, nil
}
