// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"errors"
	"io"
	"slices"

	mount "k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// formatAndMount mounts a device, by the rules of mount-utils: an empty one gets a file
// system first, any other is checked by fsck, unless it is read only.
func (d *disks) formatAndMount(r *supervisorv1.StageDiskRequest, device, target string) error {
	// blkid(8) finds nothing on an unreadable device, as on an empty one.
	if _, err := d.run("dd", "if="+device, "of=/dev/null", "bs=64k", "count=1", "status=none"); err != nil {
		return said("read "+device, err)
	}
	mode := "rw"
	if r.GetReadOnly() {
		mode = "ro"
	}
	safe := mount.SafeFormatAndMount{Interface: mounter{d: d}, Exec: launcher{d: d}}
	err := safe.FormatAndMount(device, target, r.GetFsType(), append(slices.Clone(r.GetOptions()), mode))
	var house *rpc.Error
	if err == nil || errors.As(err, &house) {
		return err
	}
	return rpc.Conflict.Errorf("%w", err)
}

// mounter is the one thing that formatAndMount wants of mount-utils' mounts.
type mounter struct {
	mount.Interface
	d *disks
}

// MountSensitive implements mount.Interface; no option of ours is secret.
func (m mounter) MountSensitive(source, target, fstype string, options, _ []string) error {
	_, err := m.d.run("mount", diskArgs(source, target, fstype, options)...)
	return said("mount "+source+" on "+target, err)
}

// diskArgs are mount(8)'s.
func diskArgs(source, target, fstype string, options []string) []string {
	args := []string{"-t", fstype}
	for _, o := range options {
		args = append(args, "-o", o)
	}
	return append(args, "--", source, target)
}

// launcher starts programs in the way of runner.
type launcher struct {
	exec.Interface
	d *disks
}

// Command implements exec.Interface.
func (p launcher) Command(name string, args ...string) exec.Cmd {
	return &program{d: p.d, name: name, args: args}
}

// CommandContext implements exec.Interface; the request's context is used instead.
func (p launcher) CommandContext(_ context.Context, name string, args ...string) exec.Cmd {
	return p.Command(name, args...)
}

type program struct {
	exec.Cmd
	d    *disks
	name string
	args []string
}

// SetStdin implements exec.Cmd.
func (p *program) SetStdin(io.Reader) {}

// CombinedOutput implements exec.Cmd.
func (p *program) CombinedOutput() ([]byte, error) {
	out, err := p.d.run(p.name, p.args...)
	var failed *failure
	if errors.As(err, &failed) {
		return []byte(out), &exec.CodeExitError{Err: err, Code: failed.code}
	}
	return []byte(out), err
}
