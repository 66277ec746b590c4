// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"errors"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// disks carries out one request about a disk.
type disks struct {
	*tools
	host host
}

// write writes to a file of sysfs or procfs. That may hang with a device, so a child
// process does it.
func (d *disks) write(file, text string) error {
	_, err := d.run("sh", "-c", `printf %s "$1" > "$2"`, "sh", text, file)
	return err
}

// said makes a tool's failure the error of the request.
func said(what string, err error) error {
	var failed *failure
	if errors.As(err, &failed) {
		return rpc.Conflict.Errorf("failed to %s: %s (%w)", what, failed.output, failed.err)
	}
	return err
}
