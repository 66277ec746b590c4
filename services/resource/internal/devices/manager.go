// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
)

// Config of a Manager.
type Config struct {
	// Dir is the folder of device plugins.
	Dir string
	Log *slog.Logger
	Now func() time.Time
	// Patience is how long a call may take until the plugin counts as hung.
	Patience time.Duration
	// Changed is called when the inventory is another. It does not block.
	Changed func()
	// Registered is called for every registration that is tried, and Allocated for every
	// Allocate that was answered; both count.
	Registered func(resource string)
	Allocated  func(resource string, took time.Duration)
}

// Manager knows the plugins. Make it with New.
type Manager struct {
	cfg Config
	// kept are the entries of the kubelet's file at start.
	kept []checkpoint.PodDevicesEntry

	mu      sync.Mutex
	plugins map[string]*plugin
	// inventory is replaced, not changed.
	inventory Inventory
}

// New reads the kubelet's file. A file that is damaged counts as empty, as for a kubelet:
// what pods have is in the journal of package resource, too.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, plugins: map[string]*plugin{}, inventory: Inventory{}}
	entries, registered, err := checkpoint.Read(filepath.Join(cfg.Dir, checkpoint.Name))
	if err != nil {
		cfg.Log.Error("devices of pods not read", "error", err.Error())
	}
	m.kept = entries
	for name, ids := range registered {
		r := &Resource{State: Away, Since: cfg.Now(), Why: "it has not registered yet", Devices: map[string]Device{}, Kept: true}
		for _, id := range ids {
			r.Devices[id] = Device{ID: id}
		}
		m.inventory[name] = r
	}
	return m
}

// Kept are the entries of the kubelet's file when this process started.
func (m *Manager) Kept() []checkpoint.PodDevicesEntry { return m.kept }

// File is the content of the kubelet's file for what pods have.
func (m *Manager) File(entries []checkpoint.PodDevicesEntry) ([]byte, error) {
	registered := map[string][]string{}
	for name, r := range m.Inventory() {
		if r.State == Gone {
			continue
		}
		healthy := []string{}
		for _, id := range slices.Sorted(maps.Keys(r.Devices)) {
			if r.Devices[id].Healthy || r.State == Away {
				healthy = append(healthy, id)
			}
		}
		registered[name] = healthy
	}
	return checkpoint.Marshal(entries, registered)
}

// Inventory is what there is now.
func (m *Manager) Inventory() Inventory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inventory
}

// set replaces a resource; callers hold mu.
func (m *Manager) set(name string, r *Resource) {
	m.inventory = maps.Clone(m.inventory)
	m.inventory[name] = r
}

// register connects to a plugin and follows its devices until it ends, or ctx does.
func (m *Manager) register(ctx context.Context, name, socket string) error {
	m.cfg.Registered(name)
	if !pod.IsExtended(v1.ResourceName(name)) {
		return fmt.Errorf("the ResourceName %q is invalid", quiet.Cut(name, 256))
	}
	p, err := connect(ctx, name, socket)
	if err != nil {
		return err
	}
	m.mu.Lock()
	before := m.plugins[name]
	m.plugins[name] = p
	m.mu.Unlock()
	if before != nil {
		before.stop()
	}
	m.cfg.Log.Info("device plugin registered", "resource", name, "socket", socket)
	go func() {
		defer p.stop()
		err := p.follow(func(list []*pluginapi.Device) { m.took(p, list) })
		if ctx.Err() == nil {
			m.ended(p, err)
		}
	}()
	return nil
}

// unregister ends the connection to the plugin at a socket.
func (m *Manager) unregister(name, socket string) {
	m.mu.Lock()
	p := m.plugins[name]
	m.mu.Unlock()
	if p != nil && p.socket == socket {
		p.stop()
	}
}

// took notes the devices that a plugin has now.
func (m *Manager) took(p *plugin, list []*pluginapi.Device) {
	r := &Resource{
		State: Serving, Since: m.cfg.Now(), Devices: make(map[string]Device, len(list)),
		Prefers: p.options.GetGetPreferredAllocationAvailable(), Prestarts: p.options.GetPreStartRequired(),
	}
	for _, d := range list {
		r.Devices[d.GetID()] = device(d)
	}
	m.mu.Lock()
	if m.plugins[p.resource] != p {
		m.mu.Unlock()
		return
	}
	if p.hung != "" {
		r.State, r.Why = Hung, p.hung
	}
	if before := m.inventory[p.resource]; before != nil && before.State == r.State {
		r.Since = before.Since
	}
	m.set(p.resource, r)
	m.mu.Unlock()
	m.cfg.Changed()
}

// ended notes that a plugin is away, unless another instance has taken its place. The
// resource of one that never listed its devices is there from now on, with none, as a
// kubelet's is.
func (m *Manager) ended(p *plugin, err error) {
	m.mu.Lock()
	if m.plugins[p.resource] != p {
		m.mu.Unlock()
		return
	}
	delete(m.plugins, p.resource)
	before := m.inventory[p.resource]
	if before == nil {
		before = &Resource{}
	}
	m.set(p.resource, before.in(Away, m.cfg.Now(), "it has ended"))
	m.mu.Unlock()
	m.cfg.Log.Warn("device plugin ended", "resource", p.resource, "error", quiet.Cut(fmt.Sprint(err), 1024))
	m.cfg.Changed()
}

// in is a resource in another state.
func (r *Resource) in(state State, since time.Time, why string) *Resource {
	next := *r
	next.State, next.Since, next.Why = state, since, why
	return &next
}

// Expire makes resources gone whose plugins have been away for Grace, and takes the devices
// of those that no plugin has confirmed within Confirm. It returns when there will be more
// to do, zero for never.
func (m *Manager) Expire() (next time.Time) {
	now := m.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.inventory {
		at := r.Since.Add(Grace)
		if r.Kept {
			at = r.Since.Add(Confirm)
		}
		switch {
		case r.State != Away:
		case r.Kept && !now.Before(at):
			unconfirmed := r.in(Away, r.Since, r.Why)
			unconfirmed.Devices, unconfirmed.Kept = nil, false
			m.set(name, unconfirmed)
			if at = r.Since.Add(Grace); next.IsZero() || at.Before(next) {
				next = at
			}
		case !now.Before(at):
			gone := r.in(Gone, now, r.Why)
			gone.Devices = nil
			m.set(name, gone)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}

// Call is a call to a plugin. It goes on, however long it takes, until the plugin answers
// or is away.
type Call[T any] struct {
	// Done is closed when it has ended; then Answer and Err hold. ErrAway is in the error
	// when the plugin is away; any other error is the plugin's.
	Done   chan struct{}
	Answer T
	Err    error
	// Late is closed when it takes long: the resource is Hung from then on.
	Late chan struct{}
	over func()
}

// Over makes the resource Serving again after a call has ended, if it was late, once what
// came of it can be seen: pods that wait look again then.
func (c *Call[T]) Over() {
	select {
	case <-c.Late:
		c.over()
	default:
	}
}

// Allocate has a plugin prepare devices for a container.
func (m *Manager) Allocate(resource string, ids []string) *Call[*pluginapi.ContainerAllocateResponse] {
	began := m.cfg.Now()
	return call(m, resource, "Allocate", m.cfg.Patience, func(ctx context.Context, p *plugin) (*pluginapi.ContainerAllocateResponse, error) {
		answer, err := p.api.Allocate(ctx, &pluginapi.AllocateRequest{
			ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
		})
		if err != nil {
			return nil, err
		}
		m.cfg.Allocated(resource, m.cfg.Now().Sub(began))
		if len(answer.GetContainerResponses()) == 0 {
			return nil, fmt.Errorf("no containers return in allocation response %v", answer)
		}
		return answer.GetContainerResponses()[0], nil
	})
}

// PreStartLimit bounds PreStartContainer, as a kubelet does. A plugin that resets a device may
// take as long, and is not hung meanwhile.
const PreStartLimit = 30 * time.Second

// PreStart has a plugin prepare devices for a container that is about to start.
func (m *Manager) PreStart(resource string, ids []string) *Call[*pluginapi.PreStartContainerResponse] {
	return call(m, resource, "PreStartContainer", max(m.cfg.Patience, PreStartLimit), func(ctx context.Context, p *plugin) (*pluginapi.PreStartContainerResponse, error) {
		limited, cancel := context.WithTimeout(ctx, PreStartLimit)
		defer cancel()
		return p.api.PreStartContainer(limited, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	})
}

// Prefer puts a question to a plugin. A plugin without a preference answers with nil.
func (m *Manager) Prefer(q Question) *Call[[]string] {
	return call(m, q.Resource, "GetPreferredAllocation", m.cfg.Patience, func(ctx context.Context, p *plugin) ([]string, error) {
		answer, err := p.api.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
			ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
				AvailableDeviceIDs: q.Available, MustIncludeDeviceIDs: q.Must, AllocationSize: int32(q.Size),
			}},
		})
		if err != nil || len(answer.GetContainerResponses()) == 0 {
			return nil, err
		}
		return answer.GetContainerResponses()[0].GetDeviceIDs(), nil
	})
}

// call begins a call, which is late after patience.
func call[T any](m *Manager, resource, method string, patience time.Duration, do func(context.Context, *plugin) (T, error)) *Call[T] {
	c := &Call[T]{Done: make(chan struct{}), Late: make(chan struct{}), over: func() {}}
	m.mu.Lock()
	p := m.plugins[resource]
	m.mu.Unlock()
	if p == nil {
		c.Err = fmt.Errorf("%s: %w", resource, ErrAway)
		close(c.Done)
		return c
	}
	why := fmt.Sprintf("it has not answered %s since %s", method, m.cfg.Now().UTC().Format(time.RFC3339))
	c.over = func() { m.become(p, Hung, Serving, "") }
	late := time.AfterFunc(patience, func() {
		m.become(p, Serving, Hung, why)
		close(c.Late)
	})
	go func() {
		defer close(c.Done)
		c.Answer, c.Err = do(p.life, p)
		if !late.Stop() {
			<-c.Late
		}
		if p.lost(c.Err) {
			c.Err = fmt.Errorf("%s: %w: %w", resource, ErrAway, c.Err)
		}
	}()
	return c
}

// become changes the state of a plugin's resource from one to another; why is empty unless
// the plugin is hung from then on.
func (m *Manager) become(p *plugin, from, to State, why string) {
	m.mu.Lock()
	p.hung = why
	r := m.inventory[p.resource]
	changed := m.plugins[p.resource] == p && r != nil && r.State == from
	if changed {
		m.set(p.resource, r.in(to, m.cfg.Now(), why))
	}
	m.mu.Unlock()
	if changed {
		m.cfg.Changed()
	}
}
