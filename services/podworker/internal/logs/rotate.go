package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// Container is a running container with a log.
type Container struct{ ID, LogPath string }

// RotatorDeps is what a Rotator works with.
type RotatorDeps struct {
	Runtime runtimeapi.RuntimeServiceClient
	// Running lists the running containers.
	Running func() []Container
	// Config is nil until the configuration is known.
	Config func() *kubeconf.Config
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// Rotator keeps the logs of running containers within their limits.
type Rotator struct{ deps RotatorDeps }

// NewRotator makes a Rotator; Run makes it work.
func NewRotator(deps RotatorDeps) *Rotator { return &Rotator{deps} }

// Defaults of the kubelet, for fields the configuration leaves out.
const (
	defaultMaxSize  = 10 << 20
	defaultMaxFiles = 5
	defaultInterval = 10 * time.Second
)

type settings struct {
	Limits
	interval time.Duration
	workers  int
}

func settingsOf(cfg *kubeconf.Config) (settings, error) {
	s := settings{Limits{defaultMaxSize, defaultMaxFiles}, defaultInterval, 1}
	if cfg == nil {
		return s, nil
	}
	if size := cfg.Kubelet.ContainerLogMaxSize; size != "" {
		q, err := resource.ParseQuantity(size)
		if err != nil {
			return s, fmt.Errorf("containerLogMaxSize: %w", err)
		}
		s.MaxSize = q.Value()
	}
	if n := cfg.Kubelet.ContainerLogMaxFiles; n != nil {
		s.MaxFiles = int(*n)
	}
	if d := cfg.Kubelet.ContainerLogMonitorInterval; d != nil && d.Duration > 0 {
		s.interval = d.Duration
	}
	if n := cfg.Kubelet.ContainerLogMaxWorkers; n != nil && *n > 0 {
		s.workers = int(*n)
	}
	return s, nil
}

// Run looks at all logs each containerLogMonitorInterval until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	for {
		s, err := settingsOf(r.deps.Config())
		if err != nil {
			r.deps.Log.Error("log rotation goes by the default", "error", err.Error())
		}
		timer := r.deps.Clock.NewTimer(s.interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		if r.deps.Config() != nil {
			r.Round(ctx)
		}
	}
}

// Round looks at all logs once.
func (r *Rotator) Round(ctx context.Context) {
	s, _ := settingsOf(r.deps.Config()) // Run has told
	var group errgroup.Group
	group.SetLimit(s.workers)
	for _, c := range r.deps.Running() {
		group.Go(func() error {
			if err := r.rotate(ctx, c, s.Limits); err != nil && ctx.Err() == nil {
				r.deps.Log.ErrorContext(ctx, "log not rotated", "container", c.ID, "path", c.LogPath, "error", err.Error())
			}
			return nil
		})
	}
	_ = group.Wait() // errors are logged, each with its container
}

func (r *Rotator) rotate(ctx context.Context, c Container, limits Limits) error {
	if c.LogPath == "" {
		return nil
	}
	log := live{path: c.LogPath}
	info, err := os.Stat(c.LogPath)
	switch {
	case err == nil:
		log.exists, log.size = true, info.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	var rotated []string
	if log.exists && limits.MaxSize >= 0 && log.size > limits.MaxSize {
		if rotated, err = siblings(c.LogPath); err != nil {
			return err
		}
	}
	return r.carryOut(ctx, c, plan(log, rotated, limits, r.deps.Clock.Now()))
}

// siblings lists the regular files beside a log.
func siblings(log string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(log))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			files = append(files, filepath.Join(filepath.Dir(log), e.Name()))
		}
	}
	return files, nil
}

func (r *Rotator) carryOut(ctx context.Context, c Container, p Plan) error {
	if p.Reopen {
		return r.reopen(ctx, c.ID)
	}
	for _, path := range p.Remove {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, path := range p.Compress {
		if err := compress(path); err != nil {
			return fmt.Errorf("compress %s: %w", path, err)
		}
	}
	if p.Rotate == "" {
		return nil
	}
	if err := os.Rename(c.LogPath, p.Rotate); err != nil {
		return err
	}
	if err := fault.Hit(ctx, "podworker.rotate"); err != nil {
		return errors.Join(err, os.Rename(p.Rotate, c.LogPath))
	}
	if err := r.reopen(ctx, c.ID); err != nil {
		// The container still writes to the old file; give it its name back.
		return errors.Join(err, os.Rename(p.Rotate, c.LogPath))
	}
	return nil
}

func (r *Rotator) reopen(ctx context.Context, id string) error {
	if _, err := r.deps.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("reopen log: %w", err)
	}
	return nil
}

// compress replaces a file by its compressed form. Cut off at any point it
// leaves the file, or the file and its compressed form, never neither.
func compress(path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	tmp := path + tmpSuffix
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}()
	packed := gzip.NewWriter(out)
	if _, err := io.Copy(packed, in); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := errors.Join(packed.Close(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path+gzipSuffix); err != nil {
		return err
	}
	return os.Remove(path)
}
