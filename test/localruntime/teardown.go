// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Teardown removes every trace of the runtime in cfg.Dir: pods, shims,
// containerd, mounts, network namespaces, host port rules, the bridge, empty
// cgroups below CgroupRoots, and the directory. A directory that is not there is
// no error; one that Ensure did not make is refused.
//
// Pods are stopped through CRI when that can be had, starting containerd once
// more if need be, because only CRI undoes their network in good order. What CRI
// leaves is then found by its paths and removed by force.
//
// Bridge and Socket are taken from what Ensure noted when the caller leaves them
// open, so Dir is enough to remove any runtime.
func Teardown(ctx context.Context, cfg Config) error {
	cfg, err := cfg.existing()
	if err != nil || cfg.Dir == "" {
		return err
	}
	if cfg.hasPods() {
		if err := cfg.removePods(ctx); err != nil {
			cfg.Logger.WarnContext(ctx, "pods are removed by force", "cause", err.Error())
		}
	}
	err = errors.Join(cfg.clear(ctx, 10*time.Second), removeCNICache(cfg.networkName()))
	if err != nil {
		// The directory names what is left; keep it for the next attempt.
		return fmt.Errorf("local runtime: remove %s: %w", cfg.Dir, err)
	}
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return fmt.Errorf("local runtime: %w", err)
	}
	return nil
}

// Crash does to the runtime in cfg.Dir what a loss of power does: containerd, shims
// and containers end at once, and of what is on no disk nothing stays: mounts,
// network namespaces, host port rules, the bridge, cgroups, sockets, and the state
// directory, which is on a tmpfs elsewhere. The next Ensure is the start after it:
// it knows the containers, and none of them runs.
func Crash(ctx context.Context, cfg Config) error {
	cfg, err := cfg.existing()
	if err != nil || cfg.Dir == "" {
		return err
	}
	if err := errors.Join(cfg.clear(ctx, 0), os.RemoveAll(cfg.state())); err != nil {
		return fmt.Errorf("local runtime: crash %s: %w", cfg.Dir, err)
	}
	return nil
}

// existing is the configuration of the runtime that Ensure made in c.Dir, without a
// Dir if there is none.
func (c Config) existing() (Config, error) {
	if noted, err := c.readMarker(); err == nil {
		c.Bridge = cmp.Or(c.Bridge, noted.Bridge)
		c.Socket = cmp.Or(c.Socket, noted.Socket)
	}
	c, err := c.withDefaults()
	if err != nil {
		return Config{}, fmt.Errorf("local runtime: %w", err)
	}
	if _, err := os.Stat(c.Dir); errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	if _, err := os.Stat(c.markerFile()); err != nil {
		return Config{}, fmt.Errorf("local runtime: %s was not made by it, not removed: %w", c.Dir, err)
	}
	return c, nil
}

// clear ends by force what runs, containerd within the grace, and removes what it
// has on the machine outside its directory.
func (c Config) clear(ctx context.Context, grace time.Duration) error {
	errs := []error{readProcess(c.pidFile()).stop(ctx, grace)}
	sockets := shimSockets(c.state())
	errs = append(errs, killShims(ctx, c.Socket), unmountBelow(ctx, c.Dir), deleteBridge(c.Bridge), removeHostPortRules(ctx, c.networkName()))
	for _, root := range c.CgroupRoots {
		errs = append(errs, removeCgroup(ctx, root))
	}
	for _, s := range append(sockets, c.Socket, c.Socket+".ttrpc") {
		errs = append(errs, removeIfThere(s))
	}
	return errors.Join(errs...)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// hasPods tells from the files whether anything may still run.
func (c Config) hasPods() bool {
	if readProcess(c.pidFile()).alive() {
		return true
	}
	tasks, _ := filepath.Glob(filepath.Join(c.state(), taskDir, criNamespace, "*"))
	return len(tasks) > 0
}

// removePods stops and removes every sandbox through CRI.
func (c Config) removePods(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := answering(ctx, c.Socket); err != nil {
		if _, err := Ensure(ctx, c); err != nil {
			return err
		}
	}
	conn, err := Dial(c.Socket)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // every call was answered
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, s := range list.GetItems() {
		g.Go(func() error {
			if _, err := cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
				return fmt.Errorf("stop sandbox %s: %w", s.GetId(), err)
			}
			if _, err := cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
				return fmt.Errorf("remove sandbox %s: %w", s.GetId(), err)
			}
			return nil
		})
	}
	return g.Wait()
}
