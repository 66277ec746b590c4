// SPDX-License-Identifier: Apache-2.0

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
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// Container is a running container with a log.
type Container struct{ ID, LogPath string }

// RotatorDeps is what a Rotator works with.
type RotatorDeps struct {
	Runtime runtimeapi.RuntimeServiceClient
	// Running lists the running containers, and Changed tells that the list is another now.
	Running func() []Container
	Changed <-chan struct{}
	// Config is nil until the configuration is known.
	Config func() *kubeletconfig.Config
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// Rotator keeps the logs of running containers within their limits. A log that grows
// is looked at more often than containerLogMonitorInterval asks for: within the
// kubelet's ten seconds a writer of 10 MB/s passes its limit tenfold. One that does not
// is looked at less and less, down to that interval.
type Rotator struct {
	deps RotatorDeps
	// glance looks at one log.
	glance func(path string) (live, error)
	// logs of the containers that ran at listed; there are others now if it is stale.
	logs   []watched
	listed time.Time
	stale  bool

	mu          sync.Mutex
	compressing map[string]bool // by path
	failed      map[string]bool // by path
	packing     sync.WaitGroup
	// packers has a place: one log is compressed at a time.
	packers chan struct{}
}

// watched is a log, its size at the last look, and when it is looked at again: after pause.
type watched struct {
	Container
	size  int64
	pause time.Duration
	due   time.Time
}

// next sets when to look again at a log of this size.
func (l *watched) next(now time.Time, size int64, s settings) {
	soon := lookAgain(size, s.MaxSize)
	if l.pause > 0 && size == l.size {
		l.pause = max(soon, min(2*l.pause, s.interval))
	} else {
		l.pause = soon
	}
	l.size, l.due = size, now.Add(l.pause)
}

// NewRotator makes a Rotator; Run makes it work.
func NewRotator(deps RotatorDeps) *Rotator {
	return &Rotator{deps: deps, glance: glance, compressing: map[string]bool{}, failed: map[string]bool{}, packers: make(chan struct{}, 1)}
}

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

func settingsOf(cfg *kubeletconfig.Config) (settings, error) {
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

// Run looks at all logs, as often as each needs, until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	defer r.packing.Wait()
	var told string
	full := r.deps.Clock.Now() // when missing logs were looked for
	next := full.Add(glancePeriod)
	for {
		timer := r.deps.Clock.NewTimer(max(next.Sub(r.deps.Clock.Now()), glanceLeast))
		changed := r.deps.Changed
		if r.stale { // known; it is listed when its time has come
			changed = nil
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			timer.Stop()
			r.stale = true
			next = earlier(next, r.listed.Add(glancePeriod))
			continue
		case <-timer.C():
		}
		now := r.deps.Clock.Now()
		next = now.Add(glancePeriod)
		cfg := r.deps.Config()
		if cfg == nil {
			continue
		}
		s, err := settingsOf(cfg)
		if err != nil && err.Error() != told {
			told = err.Error()
			r.deps.Log.Error("log rotation goes by the default", "error", told)
		}
		missing := now.Sub(full) >= s.interval
		if missing {
			full = now
		}
		next = earlier(r.look(ctx, s, missing), full.Add(s.interval))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// list takes up the containers that run now; a log that is known keeps its time.
func (r *Rotator) list(now time.Time) {
	known := make(map[Container]watched, len(r.logs))
	for _, l := range r.logs {
		known[l.Container] = l
	}
	r.logs, r.listed, r.stale = r.logs[:0], now, false
	for _, c := range r.deps.Running() {
		l := known[c]
		l.Container = c
		r.logs = append(r.logs, l)
	}
}

// look rotates what is over its limit, of the logs whose time has come, and returns when
// that of the next has. missing: all logs are looked at, and those that are not there
// are asked for.
func (r *Rotator) look(ctx context.Context, s settings, missing bool) time.Time {
	var group errgroup.Group
	group.SetLimit(s.workers)
	now := r.deps.Clock.Now()
	if missing || r.stale && now.Sub(r.listed) >= glancePeriod {
		r.list(now)
	}
	if missing {
		r.mu.Lock()
		r.failed = map[string]bool{} // also those of containers that are gone
		r.mu.Unlock()
	}
	for i := range r.logs {
		l := &r.logs[i]
		if !missing && l.due.After(now) {
			continue
		}
		c := l.Container
		l.due = now.Add(glancePeriod)
		if !missing && r.failing(c.LogPath) {
			continue
		}
		log, err := r.glance(c.LogPath)
		if err == nil && !log.exists && !missing {
			continue
		}
		if err == nil && log.exists && !over(log.size, s.Limits) { // nearly all, nearly always
			r.note(c.LogPath, nil)
			l.next(now, log.size, s)
			continue
		}
		group.Go(func() (_ error) {
			size := int64(0)
			if err == nil {
				size, err = r.rotate(ctx, c, log, s.Limits)
			}
			r.note(c.LogPath, err)
			if err == nil {
				l.next(now, size, s)
			} else if ctx.Err() == nil {
				r.deps.Log.ErrorContext(ctx, "log not rotated", "container", c.ID, "path", c.LogPath, "error", err.Error())
			}
			return
		})
	}
	_ = group.Wait() // errors are logged, each with its container
	first := now.Add(s.interval)
	if r.stale {
		first = earlier(first, r.listed.Add(glancePeriod))
	}
	for _, l := range r.logs {
		first = earlier(first, l.due)
	}
	return first
}

// failing: a log whose rotation failed waits for the next full round.
func (r *Rotator) failing(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed[path]
}

func (r *Rotator) note(path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed[path] = true
	} else {
		delete(r.failed, path)
	}
}

// glance looks at one log.
func glance(path string) (live, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil:
		return live{path: path, exists: true, size: info.Size()}, nil
	case errors.Is(err, fs.ErrNotExist):
		return live{path: path}, nil
	}
	return live{}, err
}

// rotate sees to one log. size is what it has now: 0 once it was rotated.
func (r *Rotator) rotate(ctx context.Context, c Container, log live, limits Limits) (size int64, err error) {
	p, err := r.plan(log, limits)
	if err != nil {
		return log.size, err
	}
	if err := r.carryOut(ctx, c, p); err != nil || p.Rotate == "" {
		return log.size, err
	}
	return 0, nil
}

// plan decides by what is beside a log while no compression comes to its end: one that does
// would have a log under both names, or neither.
func (r *Rotator) plan(log live, limits Limits) (p Plan, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rotated []string
	if log.exists && over(log.size, limits) {
		if rotated, err = siblings(log.path); err != nil {
			return p, err
		}
	}
	return plan(log, rotated, r.compressing, limits, r.deps.Clock.Now()), nil
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
		if err := file.Remove(path); err != nil {
			return err
		}
	}
	// Compression takes its time, in which the live log grows: it comes last, and
	// nothing waits for it.
	defer r.pack(p.Compress)
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

// pack compresses files beside the rotation.
func (r *Rotator) pack(paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range paths {
		r.compressing[path] = true
		r.packing.Go(func() {
			r.packers <- struct{}{}
			defer func() { <-r.packers }()
			err := compress(path)
			r.mu.Lock()
			defer r.mu.Unlock()
			if err == nil {
				err = replace(path)
			}
			delete(r.compressing, path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // its container may be gone
				r.deps.Log.Error("log not compressed", "path", path, "error", err.Error())
			}
		})
	}
}

func (r *Rotator) reopen(ctx context.Context, id string) error {
	if _, err := r.deps.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("reopen log: %w", err)
	}
	return nil
}

// compress writes the compressed form of a file beside it, for replace. Cut off at any point the
// two leave the file, or the file and its compressed form, never neither. It opens
// nothing through a link and writes to no file that was there: a pod may have the
// folder mounted.
func compress(path string) (err error) {
	in, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	tmp := path + tmpSuffix
	if err := file.Remove(tmp); err != nil {
		return err
	}
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
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
	return errors.Join(packed.Close(), out.Close())
}

// replace has a log's compressed form take its place.
func replace(path string) error {
	tmp := path + tmpSuffix
	if err := os.Rename(tmp, path+gzipSuffix); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) { // it was too old meanwhile
		return os.Remove(path + gzipSuffix)
	}
	return err
}
