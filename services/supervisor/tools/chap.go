// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// Secrets are written into iscsiadm's records, in its own format, and not passed as
// arguments, which every process of the node can read. A record is a file of lines
// "name = value", readable by root alone.

// databases are the folders of iscsiadm's records: of Debian and SUSE, and of Red Hat.
var databases = []string{"etc/iscsi", "var/lib/iscsi"}

// chapParams are the lines that have an authentication use CHAP.
func chapParams(prefix string, c *supervisorv1.CHAP) map[string]string {
	params := map[string]string{prefix + ".authmethod": "CHAP"}
	for name, value := range map[string]string{
		".username": c.GetUsername(), ".password": c.GetPassword(), ".username_in": c.GetUsernameIn(), ".password_in": c.GetPasswordIn(),
	} {
		if value != "" {
			params[prefix+name] = value
		}
	}
	return params
}

// setParams changes a record: existing lines are replaced, new ones go before its last
// comment.
func setParams(record string, params map[string]string) string {
	left := maps.Clone(params)
	var lines []string
	for line := range strings.Lines(record) {
		line = strings.TrimSuffix(line, "\n")
		name, _, _ := strings.Cut(line, " = ")
		if value, ok := params[name]; ok {
			if _, first := left[name]; !first {
				continue
			}
			line = name + " = " + value
			delete(left, name)
		}
		if line == "# END RECORD" {
			for _, name := range slices.Sorted(maps.Keys(left)) {
				lines = append(lines, name+" = "+left[name])
			}
			left = nil
		}
		lines = append(lines, line)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		lines = append(lines, name+" = "+left[name])
	}
	return strings.Join(lines, "\n") + "\n"
}

// keepDiscoverySecret writes credentials to the record of a portal.
func (h host) keepDiscoverySecret(portal string, c *supervisorv1.CHAP) error {
	for _, db := range databases {
		name := string(h.join(db, "send_targets", address(portal), "st_config"))
		err := editRecord(name, chapParams("discovery.sendtargets.auth", c))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return rpc.Conflict.Errorf("CHAP: iscsiadm made no record of portal %s in /%s", portal, strings.Join(databases, " or /"))
}

// keepSessionSecret writes credentials to the records of a target.
func (h host) keepSessionSecret(target, iface string, c *supervisorv1.CHAP) error {
	found := false
	for _, db := range databases {
		for _, portal := range h.list(db, "nodes", target) {
			err := editRecord(string(h.join(db, "nodes", target, portal, iface)), chapParams("node.session.auth", c))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			found = found || err == nil
		}
	}
	if !found {
		return rpc.Conflict.Errorf("CHAP: iscsiadm made no record of target %s in /%s", target, strings.Join(databases, " or /"))
	}
	return nil
}

func editRecord(name string, params map[string]string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("record of iscsiadm: %w", err)
	}
	return file.Replace(name, []byte(setParams(string(text), params)), 0o600)
}
