package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/opencontainers/cgroups/systemd"

	"github.com/sextant-node/sextant/cmd/sextant/internal/slices"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
)

// gate is resource's way to systemd.
func (p *Plan) gate() string {
	return filepath.Join(p.Run, string(house.Resource), "systemd.sock")
}

// keepGate keeps that way open. Which driver makes cgroups is known when the
// runtime has said so; until somebody asks, the gate does nothing.
func (p *Plan) keepGate(ctx context.Context, log *slog.Logger) error {
	root, err := pod.ParseCgroupRoot(p.CgroupRoot)
	if err != nil {
		return err
	}
	gate := &slices.Gate{
		Socket: p.gate(), UID: p.Identities()[house.Resource], Bus: slices.SystemBus,
		Policy: slices.Policy{Root: root}, Log: log,
	}
	for ctx.Err() == nil {
		if err := gate.Run(ctx); err != nil {
			log.Error("gate to systemd", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// stopSlices removes the slices of a node that had a root of its own: stopping
// one stops those below it.
func (p *Plan) stopSlices(ctx context.Context) error {
	root, err := pod.ParseCgroupRoot(p.CgroupRoot)
	if err != nil || len(root) == 0 || !systemd.IsRunningSystemd() {
		return err
	}
	found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", root.Path(pod.Systemd)))
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", root.Path(pod.Systemd))); errors.Is(err, fs.ErrNotExist) && len(found) == 0 {
		return nil
	}
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", root.Slice(), err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, root.Slice(), "replace", done); err != nil {
		return fmt.Errorf("%s: %w", root.Slice(), err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s: stopping it ended as %s", root.Slice(), result)
		}
	}
	return nil
}
