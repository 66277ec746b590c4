// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin is a device plugin that works, for tests: it serves
// k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1 on a socket, and registers at that of the
// node's agent. Its devices are names; what it gives for a device is a variable, a device
// node, a mount, an annotation and a CDI name.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin is one instance of a plugin.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	t                       testing.TB
	dir, resource, endpoint string
	server                  *grpc.Server
	options                 *pluginapi.DevicePluginOptions
	mu                      sync.Mutex
	devices                 []*pluginapi.Device
	changed                 chan struct{}
	gate                    chan struct{} // closed unless calls hang
	refusal                 error
	crashes                 bool // with each call of Allocate
	crashed                 int
	allocated, started      [][]string
	asked, waiting          int
	dead                    bool // it is not to come back by itself
}

// Options change a plugin before it starts.
type Options func(*Plugin)

// Prefers has the plugin offer GetPreferredAllocation: it prefers the highest IDs.
func Prefers(p *Plugin) { p.options.GetPreferredAllocationAvailable = true }

// Prestarts has the plugin ask for PreStartContainer.
func Prestarts(p *Plugin) { p.options.PreStartRequired = true }

// At has the plugin serve at another socket than others of its resource, as the next
// instance of one does that is updated.
func At(endpoint string) Options { return func(p *Plugin) { p.endpoint = endpoint } }

// Device is a healthy device near NUMA nodes.
func Device(id string, nodes ...int64) *pluginapi.Device {
	d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
	for _, n := range nodes {
		if d.Topology == nil {
			d.Topology = &pluginapi.TopologyInfo{}
		}
		d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: n})
	}
	return d
}

// Devices are healthy devices of which no NUMA node is known.
func Devices(ids ...string) (all []*pluginapi.Device) {
	for _, id := range ids {
		all = append(all, Device(id))
	}
	return all
}

// Start serves a plugin in the folder of device plugins, and registers it. It ends with the
// test.
func Start(t testing.TB, dir, resource string, devices []*pluginapi.Device, options ...Options) *Plugin {
	t.Helper()
	p := &Plugin{
		t: t, dir: dir, resource: resource, endpoint: strings.ReplaceAll(resource, "/", "-") + ".sock", options: &pluginapi.DevicePluginOptions{},
		devices: devices, changed: make(chan struct{}), gate: make(chan struct{}),
	}
	close(p.gate)
	for _, o := range options {
		o(p)
	}
	t.Cleanup(p.Stop)
	if err := p.Come(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// Come serves and registers the plugin until it is registered: an agent that starts removes
// the sockets of the folder.
func (p *Plugin) Come(ctx context.Context) error {
	for {
		if p.removed() {
			if err := p.serve(); err != nil {
				return err
			}
		}
		limited, cancel := context.WithTimeout(ctx, time.Second)
		err := p.register(ctx, limited)
		if err == nil || ctx.Err() != nil {
			cancel()
			return err
		}
		<-limited.Done()
		cancel()
	}
}

// removed reports whether the plugin's socket is not there.
func (p *Plugin) removed() bool {
	_, err := os.Stat(filepath.Join(p.dir, p.endpoint))
	return err != nil
}

// Stay has the plugin come back by itself, until the test ends, whenever its socket is
// removed: so a plugin notices that the agent has started again.
func (p *Plugin) Stay() {
	stays, stop := context.WithCancel(p.t.Context())
	ended := make(chan struct{})
	p.t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for stays.Err() == nil {
			p.mu.Lock()
			dead := p.dead
			p.mu.Unlock()
			if !dead && p.removed() {
				_ = p.Come(stays) // the agent may be killed at any moment; it is tried again
			}
			select {
			case <-tick.C:
			case <-stays.Done():
			}
		}
	}()
}

// Die ends the plugin until Live, also one that stays.
func (p *Plugin) Die() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.Stop()
}

// Live lets a plugin that stays come back.
func (p *Plugin) Live() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = false
}

// Serve makes the plugin's socket, also again after Stop or when it was removed.
func (p *Plugin) Serve() {
	p.t.Helper()
	if err := p.serve(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Plugin) serve() error {
	p.Stop()
	path := filepath.Join(p.dir, p.endpoint)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	return nil
}

// Stop ends the plugin as a kill does.
func (p *Plugin) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		p.server.Stop()
	}
}

// registering is how long an agent may take to answer: who gave it up sooner and came again
// would be another plugin, which takes the place of the first under the pods that come.
const registering = 30 * time.Second

// register waits for the agent's socket as long as connecting lasts.
func (p *Plugin) register(ctx, connecting context.Context) error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(p.dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing to lose
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(connecting, state) {
			return connecting.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, registering)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.endpoint, ResourceName: p.resource,
	})
	return err
}

// Set changes the devices.
func (p *Plugin) Set(devices ...*pluginapi.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = devices
	close(p.changed)
	p.changed = make(chan struct{})
}

// Hang has calls about devices wait until resume is called.
func (p *Plugin) Hang() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.gate = gate
	resume = sync.OnceFunc(func() { close(gate) })
	p.t.Cleanup(resume)
	return resume
}

// Waiting is how many calls wait to be resumed.
func (p *Plugin) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// Refuse has calls about devices fail, with the status of gRPC that err has, else Internal;
// nil has them succeed again.
func (p *Plugin) Refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := status.FromError(err); !ok {
		err = status.Error(codes.Internal, err.Error())
	}
	p.refusal = err
}

// Crash has the plugin end, as a kill does, with each call of Allocate.
func (p *Plugin) Crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashes = true
}

// Crashed is how often it has ended so.
func (p *Plugin) Crashed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crashed
}

// crash ends the plugin if it crashes.
func (p *Plugin) crash() error {
	p.mu.Lock()
	crashes := p.crashes
	if crashes {
		p.crashed++
	}
	p.mu.Unlock()
	if !crashes {
		return nil
	}
	p.Stop()
	return errors.New("crashed")
}

// failure is how a call about devices fails, if it does.
func (p *Plugin) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal
}

// Allocated are the devices of every call of Allocate that was answered.
func (p *Plugin) Allocated() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.allocated)
}

// Asked is how many calls of GetPreferredAllocation have come.
func (p *Plugin) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// Started are the devices of every call of PreStartContainer that was answered.
func (p *Plugin) Started() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.started)
}

// PreStartContainer implements the DevicePlugin service.
func (p *Plugin) PreStartContainer(ctx context.Context, req *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	if err := p.failure(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, req.GetDevicesIds())
	return &pluginapi.PreStartContainerResponse{}, nil
}

// GetDevicePluginOptions implements the DevicePlugin service.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return p.options, nil
}

// ListAndWatch implements the DevicePlugin service.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *Plugin) wait(ctx context.Context) error {
	p.mu.Lock()
	gate := p.gate
	p.waiting++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting--
	}()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// GetPreferredAllocation implements the DevicePlugin service.
func (p *Plugin) GetPreferredAllocation(ctx context.Context, req *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	resp := &pluginapi.PreferredAllocationResponse{}
	for _, r := range req.GetContainerRequests() {
		ids := slices.Clone(r.GetMustIncludeDeviceIDs())
		rest := slices.DeleteFunc(slices.Sorted(slices.Values(r.GetAvailableDeviceIDs())), func(id string) bool { return slices.Contains(ids, id) })
		slices.Reverse(rest)
		ids = append(ids, rest...)
		resp.ContainerResponses = append(resp.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids[:r.GetAllocationSize()]})
	}
	return resp, nil
}

// Allocate implements the DevicePlugin service.
func (p *Plugin) Allocate(ctx context.Context, req *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	if err := p.crash(); err != nil {
		return nil, err
	}
	if err := p.failure(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	resp := &pluginapi.AllocateResponse{}
	for _, r := range req.GetContainerRequests() {
		ids := r.GetDevicesIds()
		p.allocated = append(p.allocated, ids)
		one := &pluginapi.ContainerAllocateResponse{
			Envs:        map[string]string{"DEVICES": strings.Join(ids, ",")},
			Annotations: map[string]string{"devices.example.com/" + p.endpoint: strings.Join(ids, ".")},
			Mounts:      []*pluginapi.Mount{{HostPath: p.dir, ContainerPath: "/plugin/" + p.endpoint, ReadOnly: true}},
		}
		for _, id := range ids {
			one.Devices = append(one.Devices, &pluginapi.DeviceSpec{HostPath: "/dev/null", ContainerPath: "/dev/" + id, Permissions: "rw"})
			one.CdiDevices = append(one.CdiDevices, &pluginapi.CDIDevice{Name: fmt.Sprintf("%s=%s", p.resource, id)})
		}
		resp.ContainerResponses = append(resp.ContainerResponses, one)
	}
	return resp, nil
}
