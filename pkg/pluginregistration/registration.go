// SPDX-License-Identifier: Apache-2.0

// Package pluginregistration is the node's side of plugin registration
// (k8s.io/kubelet/pkg/apis/pluginregistration/v1): it watches a folder for
// sockets, calls GetInfo at each, and sends it whether the plugin was registered.
// Each service runs a Registry for the types of plugins that are its own.
//
// It owns no state but which sockets it has dealt with: after a restart GetInfo is
// called at every socket again, which plugins expect. Plugins of the types of other
// services are left alone; a type that Kubernetes does not have is refused by the one
// Registry that says so.
//
// A socket that does not answer holds up no other, and is asked again with a
// back-off until it is gone.
package pluginregistration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/quiet"
)

// Limits of a conversation (kubelet: pluginmanager).
const (
	infoLimit   = 10 * time.Second // to dial and to say who it is
	notifyLimit = 5 * time.Second
	rescan      = 5 * time.Second
)

// retries are the waits after a registration that failed.
var retries = backoff.Doubling{Least: 500 * time.Millisecond, Most: 2*time.Minute + 2*time.Second}

// Bounds of what a plugin says.
const (
	mostInfo     = 64 << 10 // bytes of an answer
	mostName     = 255      // bytes
	mostEndpoint = 4096     // bytes: PATH_MAX
	mostVersions = 100
	mostError    = 1024 // bytes of an error in the log
)

// Plugin is what a socket said of itself.
type Plugin struct {
	// Type as it registers, for example registration.CSIPlugin.
	Type, Name string
	// Endpoint is the socket that the plugin's own service is at.
	Endpoint string
	Versions []string
	// Socket is where it registers.
	Socket string
}

// Config of a registry.
type Config struct {
	// Dir is watched with the folders in it; it is made if it is not there.
	Dir string
	// Types are the plugins to register, by type, for example registration.CSIPlugin.
	Types map[string]Type
	// Refuses has plugins of types that Kubernetes does not have refused; one Registry of
	// a node does.
	Refuses bool
	// Scanned is called once, when every socket of the first look was tried; nil for no
	// call.
	Scanned func(found []string)
	Log     *slog.Logger
}

// Type is what is done with the plugins of one type.
type Type struct {
	// Register takes a plugin in, or returns why not, which the plugin receives. It may
	// take as long as it needs; other plugins are registered meanwhile. It is called again
	// for a plugin whose socket was made again, and for one that could not be notified.
	Register func(context.Context, Plugin) error
	// Unregister is called when a registered plugin's socket is gone, or another plugin
	// registers at it.
	Unregister func(Plugin)
}

// kubernetes are the types that Kubernetes has.
var kubernetes = []string{registration.CSIPlugin, registration.DevicePlugin, registration.DRAPlugin}

// Registry registers plugins. Make it with New.
type Registry struct {
	cfg Config

	mu      sync.Mutex
	sockets map[string]*socket
	talks   sync.WaitGroup

	// said is what the last scan could not watch or read. Run's goroutine has it.
	said string
}

// identity tells a socket from a later one of the same name: a socket's
// modification time is when it was made.
type identity struct {
	inode uint64
	made  time.Time
}

type socket struct {
	id     identity
	gone   bool // from the folder; guarded by Registry.mu
	cancel context.CancelFunc
	done   chan struct{} // closed when no call to it is left
	tried  chan struct{} // closed after the first try
	// in is the plugin that was taken in, whether or not it could be told; nil for none. A
	// socket that takes the place of another begins with that one's. Its goroutine has it,
	// until done.
	in *Plugin
}

// New makes a registry; Run works.
func New(cfg Config) *Registry { return &Registry{cfg: cfg, sockets: map[string]*socket{}} }

// Run works until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	defer r.talks.Wait()
	if err := os.MkdirAll(r.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("plugin registry: %w", err)
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		r.cfg.Log.Warn("inotify not available: looking for plugins now and then", "error", err.Error())
		notify = &fsnotify.Watcher{} // its channels are nil
	} else {
		defer notify.Close() //nolint:errcheck // nothing to lose in it
	}
	watching := err == nil
	first := r.scan(ctx, notify, watching)
	r.talks.Go(func() { r.tellScanned(ctx, first) })
	tick := time.NewTicker(rescan)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-notify.Events:
		case err := <-notify.Errors: // events may be lost: look
			r.cfg.Log.Debug("inotify", "error", fmt.Sprint(err))
		}
		r.scan(ctx, notify, watching)
	}
}

// tellScanned waits for the first try of every socket.
func (r *Registry) tellScanned(ctx context.Context, first map[string]*socket) {
	var found []string
	for path, s := range first {
		found = append(found, path)
		select {
		case <-s.tried:
		case <-ctx.Done():
			return
		}
	}
	if r.cfg.Scanned != nil {
		r.cfg.Scanned(found)
	}
}

// look lists the sockets below the folder, and the folders that cannot be read. A folder that
// cannot be watched, as where the kernel has no watches left, is read at each rescan. What
// fails is logged once, until something else does.
func (r *Registry) look(notify *fsnotify.Watcher, watching bool) (found map[string]identity, unread []string) {
	found = map[string]identity{}
	var problems []error
	_ = filepath.WalkDir(r.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone meanwhile
		case err != nil:
			unread, problems = append(unread, path), append(problems, err)
			return nil
		case d.IsDir():
			if watching {
				if err := notify.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // idempotent
					problems = append(problems, fmt.Errorf("watch %s: %w", path, err))
				}
			}
			return nil
		case d.Type()&fs.ModeSocket == 0:
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			found[path] = identity{st.Ino, info.ModTime()}
		}
		return nil
	})
	text := ""
	if err := errors.Join(problems...); err != nil {
		text = quiet.Cut(err.Error(), mostError)
	}
	if text != r.said && text != "" {
		r.cfg.Log.Warn("plugin registry not watched or read in full", "error", text)
	}
	r.said = text
	return found, unread
}

// scan takes up sockets that came and lets go of those that went. What is in a folder that
// cannot be read stays as it is.
func (r *Registry) scan(ctx context.Context, notify *fsnotify.Watcher, watching bool) map[string]*socket {
	found, unread := r.look(notify, watching)
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, s := range r.sockets {
		if slices.ContainsFunc(unread, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
			continue
		}
		if id, ok := found[path]; !ok || id != s.id {
			s.gone = s.gone || !ok
			s.cancel()
		}
	}
	for path, id := range found {
		before := r.sockets[path]
		if before != nil && before.id == id && !before.gone {
			continue
		}
		talk, cancel := context.WithCancel(ctx)
		s := &socket{id: id, cancel: cancel, done: make(chan struct{}), tried: make(chan struct{})}
		r.sockets[path] = s
		r.talks.Go(func() {
			defer close(s.done)
			if before != nil {
				<-before.done
				s.in = before.in
			}
			r.keep(talk, path, s)
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.sockets[path] == s && s.gone {
				delete(r.sockets, path)
			}
		})
	}
	return maps.Clone(r.sockets)
}

// keep registers the plugin of one socket, and lets it go when the socket is
// gone. When the whole registry ends, plugins stay registered.
func (r *Registry) keep(ctx context.Context, path string, s *socket) {
	tried := sync.OnceFunc(func() { close(s.tried) })
	defer tried()
	said := ""
	defer func() {
		if s.in != nil && r.wentAway(s) {
			r.cfg.Types[s.in.Type].Unregister(*s.in)
			s.in = nil
		}
	}()
	for failures := 1; ; failures++ {
		p, err := r.register(ctx, path)
		tried()
		if p != nil || err == nil {
			r.take(s, p)
		}
		if err == nil {
			<-ctx.Done()
			return
		}
		if ctx.Err() != nil {
			return
		}
		if text := quiet.Cut(err.Error(), mostError); text != said {
			said = text
			r.cfg.Log.Warn("plugin not registered", "socket", path, "error", text)
		}
		if !retries.Wait(ctx, failures) {
			return
		}
	}
}

// take notes the plugin that answered at a socket; nil for one that is not of our types. It
// takes the place of the plugin that was there before, and another one is let go.
func (r *Registry) take(s *socket, p *Plugin) {
	before := s.in
	if s.in = p; before != nil && (p == nil || p.Type != before.Type || p.Name != before.Name) {
		r.cfg.Types[before.Type].Unregister(*before)
	}
}

// wentAway reports whether a socket was removed, rather than replaced or left behind.
func (r *Registry) wentAway(s *socket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.gone
}

// pluginOf is what an answer says of the plugin that registers at a socket.
func pluginOf(info *registration.PluginInfo, socket string) (*Plugin, error) {
	p := &Plugin{Type: info.GetType(), Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions(), Socket: socket}
	p.Endpoint = cmp.Or(p.Endpoint, socket)
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case p.Name == "" || len(p.Name) > mostName || strings.ContainsFunc(p.Name, unprintable):
		return nil, fmt.Errorf("name: %q: want 1 to %d printable bytes", quiet.Cut(p.Name, mostName), mostName)
	case !filepath.IsAbs(p.Endpoint) || len(p.Endpoint) > mostEndpoint || strings.ContainsFunc(p.Endpoint, unprintable):
		return nil, fmt.Errorf("endpoint: %q: want an absolute path of at most %d bytes", quiet.Cut(p.Endpoint, mostName), mostEndpoint)
	case len(p.Versions) > mostVersions:
		return nil, fmt.Errorf("supported_versions: %d, want at most %d", len(p.Versions), mostVersions)
	}
	return p, nil
}

// register goes through the protocol once. It returns the plugin if it was taken
// in; a nil plugin without an error is of another type.
func (r *Registry) register(ctx context.Context, path string) (*Plugin, error) {
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing to lose
	client := registration.NewRegistrationClient(conn)
	asking, cancel := context.WithTimeout(ctx, infoLimit)
	defer cancel()
	info, err := client.GetInfo(asking, &registration.InfoRequest{}, grpc.MaxCallRecvMsgSize(mostInfo))
	if err != nil {
		return nil, fmt.Errorf("failed to get plugin info using RPC GetInfo at socket %s: %w", path, err)
	}
	kind, mine := r.cfg.Types[info.GetType()]
	if !mine && (!r.cfg.Refuses || slices.Contains(kubernetes, info.GetType())) {
		return nil, nil //nolint:nilnil // as documented
	}
	p, refused := pluginOf(info, path)
	if refused == nil && mine {
		refused = kind.Register(ctx, *p)
	}
	status := &registration.RegistrationStatus{PluginRegistered: true}
	switch {
	case !mine:
		refused = fmt.Errorf("no handler registered for plugin type: %s at socket %s", quiet.Cut(info.GetType(), mostName), path)
		status = &registration.RegistrationStatus{Error: refused.Error()}
	case refused != nil:
		status = &registration.RegistrationStatus{Error: fmt.Sprintf("RegisterPlugin error -- plugin registration failed with err: %v", refused)}
	}
	telling, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	if _, err := client.NotifyRegistrationStatus(telling, status); err != nil && refused == nil {
		return p, fmt.Errorf("failed to send registration status at socket %s: %w", path, err)
	}
	if refused != nil {
		return nil, refused
	}
	r.cfg.Log.Info("plugin registered", "name", p.Name, "endpoint", p.Endpoint)
	return p, nil
}
