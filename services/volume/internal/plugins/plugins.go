// Package plugins is the node's side of plugin registration
// (k8s.io/kubelet/pkg/apis/pluginregistration/v1): it watches a folder for
// sockets, asks each who is behind it, and tells it whether it was registered.
//
// It owns no state but which sockets it has dealt with: after a restart every
// socket is asked anew, which drivers expect. Plugins of another type than it was
// made for are left alone, unanswered: another service of the node answers them.
//
// A socket that does not answer holds up no other, and is asked again with a
// back-off until it is gone.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Limits of a conversation (kubelet: pluginmanager).
const (
	infoLimit   = 10 * time.Second // to dial and to say who it is
	notifyLimit = 5 * time.Second
	rescan      = 5 * time.Second
	retryLeast  = 500 * time.Millisecond
	retryMost   = 2*time.Minute + 2*time.Second
)

// Plugin is what a socket said of itself.
type Plugin struct {
	Name string
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
	// Type of plugins, for example registration.CSIPlugin.
	Type string
	// Register takes a plugin in, or says why not; it may take as long as it needs.
	Register func(context.Context, Plugin) error
	// Unregister hears that a registered plugin's socket is gone.
	Unregister func(Plugin)
	// Scanned hears, once, that every socket of the first look was tried.
	Scanned func(found []string)
	Log     *slog.Logger
}

// Registry registers plugins. Make it with New.
type Registry struct {
	cfg Config

	mu      sync.Mutex
	sockets map[string]*socket
	talks   sync.WaitGroup
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
	done   chan struct{} // closed when nobody talks to it any more
	tried  chan struct{} // closed after the first try
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
	r.cfg.Scanned(found)
}

// scan takes up sockets that came and lets go of those that went.
func (r *Registry) scan(ctx context.Context, notify *fsnotify.Watcher, watching bool) map[string]*socket {
	found := map[string]identity{}
	err := filepath.WalkDir(r.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone meanwhile
			}
			return err
		}
		if d.IsDir() {
			if watching {
				return notify.Add(path) // idempotent
			}
			return nil
		}
		if d.Type()&fs.ModeSocket == 0 {
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
	if err != nil {
		r.cfg.Log.Warn("plugin registry not read", "error", err.Error())
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, s := range r.sockets {
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
	wait := retryLeast
	tried := sync.OnceFunc(func() { close(s.tried) })
	defer tried()
	said := ""
	var in *Plugin // taken in, whether or not it could be told
	defer func() {
		if in != nil && r.wentAway(s) {
			r.cfg.Unregister(*in)
		}
	}()
	for {
		p, err := r.register(ctx, path)
		tried()
		if p != nil {
			in = p
		}
		if err == nil {
			<-ctx.Done()
			return
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said {
			said = text
			r.cfg.Log.Warn("plugin not registered", "socket", path, "error", text)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, retryMost)
	}
}

// wentAway tells whether a socket was removed, rather than replaced or left behind.
func (r *Registry) wentAway(s *socket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.gone
}

// register goes through the protocol once. It returns the plugin if it was taken
// in; a nil plugin without an error is somebody else's.
func (r *Registry) register(ctx context.Context, path string) (*Plugin, error) {
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing to lose
	client := registration.NewRegistrationClient(conn)
	asking, cancel := context.WithTimeout(ctx, infoLimit)
	defer cancel()
	info, err := client.GetInfo(asking, &registration.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("failed to get plugin info using RPC GetInfo at socket %s: %w", path, err)
	}
	if info.GetType() != r.cfg.Type {
		return nil, nil //nolint:nilnil // as documented
	}
	p := &Plugin{Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions(), Socket: path}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	status := &registration.RegistrationStatus{PluginRegistered: true}
	refused := r.cfg.Register(ctx, *p)
	if refused != nil {
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
