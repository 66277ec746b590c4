// SPDX-License-Identifier: Apache-2.0

// Package watch says "look" when files change: the one that is woken reads the files.
// inotify makes it quick; the period makes it certain (no inotify on that file
// system, a link's target edited in place, too few inotify instances). What no
// reading shows, that a name was gone in between, it tells as far as inotify does.
package watch

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Config of one watch.
type Config struct {
	// Paths are files or folders; they need not exist yet. Folders are watched
	// one level deep.
	Paths []string
	// Period wakes without a change; it must be positive.
	Period time.Duration
	// Quiet is how long nothing must happen before a wake, so that a file still
	// being written is not read half (default 50 ms). Look is not put off for
	// more than ten times that.
	Quiet time.Duration
	// Look is called from Run's goroutine.
	Look func()
	// Gone, if set, is called from there before the Look that follows, with the
	// path of each file that was removed or renamed away. Another file that takes
	// its place by being renamed to it does not make it gone.
	Gone func(path string)
	Log  *slog.Logger
}

// dataLink is the link that ConfigMap-like folders swap to change all files.
const dataLink = "..data"

// Run calls Look once it watches, after each change and each period until ctx
// ends. It returns no error but nil: without inotify the period remains.
func Run(ctx context.Context, cfg Config) error {
	cfg.Quiet = cmp.Or(cfg.Quiet, 50*time.Millisecond)
	paths := map[string]bool{}
	for _, p := range cfg.Paths {
		if p != "" {
			paths[filepath.Clean(p)] = true
		}
	}
	w := &watcher{cfg: cfg, paths: paths}
	defer w.close()
	w.arm()
	cfg.Look()
	w.run(ctx)
	return nil
}

type watcher struct {
	cfg    Config
	paths  map[string]bool
	notify *fsnotify.Watcher
	failed bool // logged once
}

func (w *watcher) run(ctx context.Context) {
	period := time.NewTimer(w.cfg.Period)
	defer period.Stop()
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	var first time.Time // of the changes not yet looked at
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-w.events():
			if !ok {
				w.close()
				continue
			}
			if !w.concerns(event.Name) {
				continue
			}
			if w.cfg.Gone != nil && (event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)) {
				w.cfg.Gone(filepath.Clean(event.Name))
			}
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			if now.Sub(first) < 10*w.cfg.Quiet {
				quiet.Reset(w.cfg.Quiet)
			}
			continue
		case err := <-w.errors():
			// An overflow lost events: look. Anything else: make a new one.
			w.cfg.Log.Warn("inotify", "error", errText(err))
			w.close()
		case <-quiet.C:
		case <-period.C:
		}
		first = time.Time{}
		quiet.Stop()
		period.Reset(w.cfg.Period)
		w.arm() // what appeared since can be watched now
		w.cfg.Look()
	}
}

// concerns reports whether a name is one of the paths, or within one.
func (w *watcher) concerns(name string) bool {
	name = filepath.Clean(name)
	if w.paths[name] || w.paths[filepath.Dir(name)] {
		return true
	}
	if filepath.Base(name) != dataLink {
		return false
	}
	for p := range w.paths {
		if filepath.Dir(p) == filepath.Dir(name) {
			return true
		}
	}
	return false
}

// arm watches each path that is a folder, and the folder around each path, so
// that a file replaced or made later is seen.
func (w *watcher) arm() {
	if w.notify == nil {
		notify, err := fsnotify.NewWatcher()
		if err != nil {
			w.report("inotify not available: polling", err)
			return
		}
		w.notify = notify
	}
	for p := range w.paths {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			w.add(p)
		}
		if parent := filepath.Dir(p); parent != p {
			w.add(parent)
		}
	}
}

// add is idempotent; a folder made again under the same name is watched again.
func (w *watcher) add(folder string) {
	if err := w.notify.Add(folder); err != nil && !os.IsNotExist(err) {
		w.report("folder cannot be watched: polling", err)
	}
}

func (w *watcher) report(message string, err error) {
	if !w.failed {
		w.cfg.Log.Warn(message, "error", err.Error())
	}
	w.failed = true
}

func (w *watcher) events() chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w *watcher) errors() chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close() // nothing to lose in it
		w.notify = nil
	}
}

func errText(err error) string {
	if err == nil {
		return "closed"
	}
	return err.Error()
}
