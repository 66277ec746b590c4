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
	if noted, err := cfg.readMarker(); err == nil {
		cfg.Bridge = cmp.Or(cfg.Bridge, noted.Bridge)
		cfg.Socket = cmp.Or(cfg.Socket, noted.Socket)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return fmt.Errorf("local runtime: %w", err)
	}
	if _, err := os.Stat(cfg.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(cfg.markerFile()); err != nil {
		return fmt.Errorf("local runtime: %s was not made by it, not removed: %w", cfg.Dir, err)
	}
	if cfg.hasPods() {
		if err := cfg.removePods(ctx); err != nil {
			cfg.Logger.WarnContext(ctx, "pods are removed by force", "cause", err.Error())
		}
	}
	var errs []error
	errs = append(errs, readProcess(cfg.pidFile()).stop(ctx, 10*time.Second))
	sockets := shimSockets(cfg.state())
	errs = append(errs, killShims(ctx, cfg.Socket))
	errs = append(errs, unmountBelow(ctx, cfg.Dir))
	errs = append(errs, deleteBridge(cfg.Bridge))
	errs = append(errs, removeHostPortRules(ctx, cfg.networkName()))
	for _, c := range cfg.CgroupRoots {
		errs = append(errs, removeCgroup(ctx, c))
	}
	for _, s := range sockets {
		errs = append(errs, removeIfThere(s))
	}
	errs = append(errs, removeCNICache(cfg.networkName()))
	errs = append(errs, removeIfThere(cfg.Socket), removeIfThere(cfg.Socket+".ttrpc"))
	if err := errors.Join(errs...); err != nil {
		// The directory names what is left; keep it for the next attempt.
		return fmt.Errorf("local runtime: remove %s: %w", cfg.Dir, err)
	}
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return fmt.Errorf("local runtime: %w", err)
	}
	return nil
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
