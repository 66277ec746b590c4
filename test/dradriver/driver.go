// SPDX-License-Identifier: Apache-2.0

// Package dradriver is a small DRA driver written from the public API
// (k8s.io/kubelet/pkg/apis/dra): it prepares claims, and registers as a kubelet expects.
// It is the peer of tests, in their process: what it has prepared outlives the service
// that is killed.
//
// A claim has one device for each request it was made for (Driver.Requests), with the CDI
// name DRIVER/device=CLAIM-REQUEST, which the runtime finds while it is prepared.
package dradriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sextant-node/sextant/test/cdi"
)

// Driver is a DRA driver. Its zero value with a Name is ready to be started; its functions
// may be changed while it is stopped.
type Driver struct {
	drav1.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	drahealth.UnimplementedDRAResourceHealthServer
	Name string
	// Versions it registers with; v1 and v1beta1 when empty.
	Versions []string
	// Requests of each claim; one named "gpu" when empty.
	Requests []string
	// CDIDir is where the runtime looks for CDI devices; none are written when empty.
	CDIDir string
	// Prepare and Unprepare may fail a claim, or hold its call up; nil for neither.
	Prepare, Unprepare func(ctx context.Context, claim *drav1.Claim) error

	mu       sync.Mutex
	server   *grpc.Server
	endpoint string          // it registers with; its registration socket when empty
	prepared map[string]bool // by UID of the claim
	calls    []string
	told     []*registration.RegistrationStatus
	health   []*drahealth.DeviceHealth // nil: it reports none
	reported chan struct{}             // closed by the next report
}

// Endpoint and Registration are the sockets of a driver below a kubelet's root directory.
func (d *Driver) Endpoint(root string) string {
	return filepath.Join(root, "plugins", d.Name, "dra.sock")
}

// Registration is where it registers.
func (d *Driver) Registration(root string) string {
	return filepath.Join(root, "plugins_registry", d.Name+"-reg.sock")
}

// Serve listens at a socket, which is made again, until Stop.
func (d *Driver) Serve(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil {
		d.server = grpc.NewServer()
		drav1.RegisterDRAPluginServer(d.server, d)
		drav1beta1.RegisterDRAPluginServer(d.server, drav1beta1.V1ServerWrapper{DRAPluginServer: d})
		registration.RegisterRegistrationServer(d.server, d)
		drahealth.RegisterDRAResourceHealthServer(d.server, d)
	}
	go d.server.Serve(listener) //nolint:errcheck // it ends with Stop
	return nil
}

// Start serves the driver below a kubelet's root directory, and registers it.
func (d *Driver) Start(root string) error {
	d.mu.Lock()
	d.endpoint = d.Endpoint(root)
	d.mu.Unlock()
	return errors.Join(d.Serve(d.Endpoint(root)), d.Serve(d.Registration(root)))
}

// Stop removes its sockets and ends its calls. What is prepared stays so.
func (d *Driver) Stop() {
	d.mu.Lock()
	server := d.server
	d.server = nil
	d.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// NodePrepareResources implements the DRA service.
func (d *Driver) NodePrepareResources(ctx context.Context, req *drav1.NodePrepareResourcesRequest) (*drav1.NodePrepareResourcesResponse, error) {
	resp := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		result, err := d.each(ctx, "prepare", c, d.Prepare)
		if err != nil {
			return nil, err
		}
		if result != nil {
			resp.Claims[c.GetUid()] = &drav1.NodePrepareResourceResponse{Error: result.Error()}
			continue
		}
		requests := d.Requests
		if len(requests) == 0 {
			requests = []string{"gpu"}
		}
		done := &drav1.NodePrepareResourceResponse{}
		var names []string
		for _, r := range requests {
			done.Devices = append(done.Devices, &drav1.Device{
				RequestNames: []string{r}, PoolName: "pool", DeviceName: c.GetName() + "-" + r,
				CdiDeviceIds: []string{fmt.Sprintf("%s/device=%s-%s", d.Name, c.GetName(), r)},
			})
			names = append(names, c.GetName()+"-"+r)
		}
		if d.CDIDir != "" {
			if err := cdi.Write(d.CDIDir, d.cdiFile(c), d.Name+"/device", names...); err != nil {
				return nil, err
			}
		}
		d.hold(c.GetUid(), true)
		resp.Claims[c.GetUid()] = done
	}
	return resp, nil
}

// NodeUnprepareResources implements the DRA service.
func (d *Driver) NodeUnprepareResources(ctx context.Context, req *drav1.NodeUnprepareResourcesRequest) (*drav1.NodeUnprepareResourcesResponse, error) {
	resp := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		result, err := d.each(ctx, "unprepare", c, d.Unprepare)
		if err != nil {
			return nil, err
		}
		resp.Claims[c.GetUid()] = &drav1.NodeUnprepareResourceResponse{}
		if result != nil {
			resp.Claims[c.GetUid()].Error = result.Error()
			continue
		}
		if d.CDIDir != "" {
			if err := cdi.Remove(d.CDIDir, d.cdiFile(c)); err != nil {
				return nil, err
			}
		}
		d.hold(c.GetUid(), false)
	}
	return resp, nil
}

// cdiFile names the specification of a claim.
func (d *Driver) cdiFile(c *drav1.Claim) string { return d.Name + "-" + c.GetUid() + ".json" }

// each counts a call for a claim and asks its fault: result is of the claim, err of the call.
func (d *Driver) each(ctx context.Context, what string, c *drav1.Claim, fault func(context.Context, *drav1.Claim) error) (result, err error) {
	d.mu.Lock()
	d.calls = append(d.calls, what+" "+c.GetNamespace()+"/"+c.GetName()+" "+c.GetUid())
	d.mu.Unlock()
	if fault == nil {
		return nil, nil
	}
	result = fault(ctx, c)
	if ctx.Err() != nil {
		return nil, status.Error(codes.Canceled, "the caller has given up")
	}
	return result, nil
}

func (d *Driver) hold(uid string, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.prepared == nil {
		d.prepared = map[string]bool{}
	}
	if is {
		d.prepared[uid] = true
	} else {
		delete(d.prepared, uid)
	}
}

// Report sends how the devices are, now and when a stream begins. Without one the driver
// does not have the service.
func (d *Driver) Report(devices ...*drahealth.DeviceHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = devices
	if d.reported != nil {
		close(d.reported)
		d.reported = nil
	}
}

// DeviceHealth is the health of a device of the driver's pool.
func DeviceHealth(device string, health drahealth.HealthStatus, message string) *drahealth.DeviceHealth {
	return &drahealth.DeviceHealth{
		Device: &drahealth.DeviceIdentifier{PoolName: "pool", DeviceName: device}, Health: health, Message: message,
	}
}

// NodeWatchResources implements the health service.
func (d *Driver) NodeWatchResources(_ *drahealth.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[drahealth.NodeWatchResourcesResponse]) error {
	for {
		d.mu.Lock()
		devices := d.health
		if d.reported == nil {
			d.reported = make(chan struct{})
		}
		reported := d.reported
		d.mu.Unlock()
		if devices == nil {
			return status.Error(codes.Unimplemented, "no health")
		}
		if err := stream.Send(&drahealth.NodeWatchResourcesResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-reported:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Prepared lists the UIDs of the claims that are prepared, sorted.
func (d *Driver) Prepared() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.prepared))
}

// Calls lists the calls for each claim so far: "prepare NAMESPACE/NAME UID", in order.
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Told lists what the registrar answered.
func (d *Driver) Told() []*registration.RegistrationStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}

// GetInfo implements the registration service.
func (d *Driver) GetInfo(_ context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info := &registration.PluginInfo{Type: registration.DRAPlugin, Name: d.Name, Endpoint: d.endpoint, SupportedVersions: d.Versions}
	if len(info.SupportedVersions) == 0 {
		info.SupportedVersions = []string{drav1.DRAPluginService, drav1beta1.DRAPluginService}
	}
	return info, nil
}

// NotifyRegistrationStatus implements the registration service.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, s)
	return &registration.RegistrationStatusResponse{}, nil
}
