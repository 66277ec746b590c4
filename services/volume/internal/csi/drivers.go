// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/pkg/store"
)

// callLimit is how long a driver may take for a call (the kubelet's).
const callLimit = 2 * time.Minute

// reconnect is when a driver that went away is dialled again: soon, for it is not registered
// again where its own container alone was restarted. A socket that nobody serves costs little.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 20 * time.Second,
}

// Info is a registered driver, as the journal keeps it.
type Info struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	// Socket is where it registered.
	Socket string `json:"socket"`
	// What NodeGetInfo said.
	NodeID     string            `json:"nodeID"`
	MaxVolumes int64             `json:"maxVolumes,omitempty"`
	Topology   map[string]string `json:"topology,omitempty"`
}

// Observe is called after each call: gRPC method and status code.
type Observe func(driver, method, code string, took time.Duration)

// Drivers are those registered on this node. Safe for concurrent use.
type Drivers struct {
	table   *store.Table[Info]
	observe Observe
	changed func(name string)
	log     *slog.Logger

	mu    sync.Mutex
	all   map[string]*driver
	watch []func()
}

// driver is one that can be called.
type driver struct {
	Info
	conn *grpc.ClientConn
	node csi.NodeClient

	mu           sync.Mutex
	capabilities map[csi.NodeServiceCapability_RPC_Type]bool // nil: not asked yet
}

// NewDrivers takes up the journal. changed is called when a driver came or went.
func NewDrivers(file *store.Store, observe Observe, changed func(name string), log *slog.Logger) (*Drivers, error) {
	table := store.NewTable(file, "csi-drivers", store.JSON[Info]())
	known, err := table.All()
	if err != nil {
		return nil, err
	}
	d := &Drivers{table: table, observe: observe, changed: changed, log: log, all: map[string]*driver{}}
	for name, info := range known {
		if d.all[name], err = d.open(info); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Watch has f called after a driver came, went or said other things of itself.
func (d *Drivers) Watch(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watch = append(d.watch, f)
}

// announce calls those who want to know of a driver.
func (d *Drivers) announce(name string) {
	d.mu.Lock()
	watch := slices.Clone(d.watch)
	d.mu.Unlock()
	d.changed(name)
	for _, f := range watch {
		f()
	}
}

// open makes a client; nothing is dialled yet.
func (d *Drivers) open(info Info) (*driver, error) {
	conn, err := grpc.NewClient("unix:"+info.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnect),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithTimeout(ctx, callLimit)
			defer cancel()
			began := time.Now()
			err := invoke(ctx, method, req, reply, conn, opts...)
			d.observe(info.Name, method, status.Code(err).String(), time.Since(began))
			return err
		}))
	if err != nil {
		return nil, fmt.Errorf("CSI driver %s at %s: %w", info.Name, info.Endpoint, err)
	}
	return &driver{Info: info, conn: conn, node: csi.NewNodeClient(conn)}, nil
}

// Register takes a driver in that has announced itself (pluginregistration.Type).
func (d *Drivers) Register(ctx context.Context, p pluginregistration.Plugin) error {
	if _, err := version.HighestSupportedVersion(p.Versions); err != nil {
		return fmt.Errorf("CSI driver %q supports none of the versions that this node does: %q: %w", p.Name, p.Versions, err)
	}
	fresh, err := d.open(Info{Name: p.Name, Endpoint: p.Endpoint, Socket: p.Socket})
	if err != nil {
		return err
	}
	info, err := fresh.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}, grpc.WaitForReady(false))
	if err == nil {
		err = checkInfo(p.Name, info)
	}
	if err != nil {
		return closing(fresh, err)
	}
	fresh.NodeID, fresh.MaxVolumes, fresh.Topology = info.GetNodeId(), info.GetMaxVolumesPerNode(), info.GetAccessibleTopology().GetSegments()
	d.mu.Lock()
	before := d.all[p.Name]
	if before != nil && before.Socket != p.Socket && listens(before.Socket) {
		d.mu.Unlock()
		return closing(fresh, fmt.Errorf("CSI driver %s is registered at %s already", p.Name, before.Socket))
	}
	if err := d.table.Put(p.Name, fresh.Info); err != nil {
		d.mu.Unlock()
		return closing(fresh, err)
	}
	d.all[p.Name] = fresh
	d.mu.Unlock()
	if before != nil {
		closing(before, nil) //nolint:errcheck // nothing to lose in it
	}
	d.announce(p.Name)
	return nil
}

// Refresh asks a driver again what it said when it registered: how many volumes the node
// may have can have changed since.
func (d *Drivers) Refresh(ctx context.Context, name string) error {
	known, err := d.get(name)
	if err != nil {
		return err
	}
	info, err := known.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}, grpc.WaitForReady(false))
	if err == nil {
		err = checkInfo(name, info)
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	if d.all[name] != known { // it registered again, or went
		d.mu.Unlock()
		return nil
	}
	now := known.Info
	now.NodeID, now.MaxVolumes, now.Topology = info.GetNodeId(), info.GetMaxVolumesPerNode(), info.GetAccessibleTopology().GetSegments()
	same := now.NodeID == known.NodeID && now.MaxVolumes == known.MaxVolumes && maps.Equal(now.Topology, known.Topology)
	if !same {
		if err := d.table.Put(name, now); err != nil {
			d.mu.Unlock()
			return err
		}
		known.NodeID, known.MaxVolumes, known.Topology = now.NodeID, now.MaxVolumes, now.Topology
	}
	d.mu.Unlock()
	if !same {
		d.announce(name)
	}
	return nil
}

// mostNodeID is the longest nodeID that the API server takes in a CSINode, in bytes.
const mostNodeID = 256

// checkInfo refuses what the API server would refuse in the CSINode and the Node's labels,
// where it would cost the other drivers their entries.
func checkInfo(name string, info *csi.NodeGetInfoResponse) error {
	bad := func(what, value, want string) error {
		return fmt.Errorf("NodeGetInfo of CSI driver %s: %s: %q: %s", quiet.Cut(name, 64), what, quiet.Cut(value, 256), want)
	}
	switch id := info.GetNodeId(); {
	case len(name) > 63 || len(validation.IsDNS1123Subdomain(strings.ToLower(name))) > 0:
		return bad("name", name, "want a DNS subdomain of at most 63 characters")
	case id == "":
		return fmt.Errorf("NodeGetInfo of CSI driver %s: node_id is empty", name)
	case len(id) > mostNodeID:
		return bad("node_id", id, fmt.Sprintf("want at most %d bytes", mostNodeID))
	}
	segments := info.GetAccessibleTopology().GetSegments()
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return bad("accessible_topology", key, problems[0])
		}
		if problems := validation.IsValidLabelValue(segments[key]); len(problems) > 0 {
			return bad("accessible_topology."+key, segments[key], problems[0])
		}
	}
	return nil
}

func closing(d *driver, err error) error {
	_ = d.conn.Close() // nothing to lose in it
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// listens reports whether somebody may be behind a socket. One that was killed leaves it.
func listens(path string) bool {
	conn, err := net.Dial("unix", path) // which does not wait: it is taken in by the kernel, or not
	if err != nil {
		return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
	}
	_ = conn.Close() // nothing was said
	return true
}

// Unregister lets a driver go whose socket is gone (pluginregistration.Type).
func (d *Drivers) Unregister(p pluginregistration.Plugin) {
	d.mu.Lock()
	gone := d.all[p.Name]
	if gone == nil || gone.Socket != p.Socket {
		d.mu.Unlock()
		return
	}
	d.drop(gone)
	d.mu.Unlock()
	d.announce(p.Name)
}

// drop forgets a driver. Callers hold mu.
func (d *Drivers) drop(gone *driver) {
	delete(d.all, gone.Name)
	if err := d.table.Delete(gone.Name); err != nil {
		d.log.Error("driver not forgotten", "driver", gone.Name, "error", err.Error())
	}
	closing(gone, nil) //nolint:errcheck // nothing to lose in it
}

// Scanned lets go of the drivers of an earlier life that are not there any more
// (pluginregistration.Config).
func (d *Drivers) Scanned(sockets []string) {
	d.mu.Lock()
	var gone []string
	for name, known := range d.all {
		if !slices.Contains(sockets, known.Socket) && !exists(known.Socket) {
			d.drop(known)
			gone = append(gone, name)
		}
	}
	d.mu.Unlock()
	for _, name := range gone {
		d.announce(name)
	}
}

// List is all drivers by name.
func (d *Drivers) List() []Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Info
	for _, name := range slices.Sorted(maps.Keys(d.all)) {
		all = append(all, d.all[name].Info)
	}
	return all
}

// get finds a driver.
func (d *Drivers) get(name string) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found := d.all[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// can reports whether a driver has a capability. It is asked once a registration.
func (d *driver) can(ctx context.Context, what csi.NodeServiceCapability_RPC_Type) (bool, error) {
	d.mu.Lock()
	known := d.capabilities
	d.mu.Unlock()
	if known == nil {
		answer, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
		if err != nil {
			return false, fmt.Errorf("NodeGetCapabilities of CSI driver %s: %w", d.Name, err)
		}
		known = map[csi.NodeServiceCapability_RPC_Type]bool{}
		for _, c := range answer.GetCapabilities() {
			known[c.GetRpc().GetType()] = true
		}
		d.mu.Lock()
		d.capabilities = known
		d.mu.Unlock()
	}
	return known[what], nil
}
