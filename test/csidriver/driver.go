// SPDX-License-Identifier: Apache-2.0

// Package csidriver is a small CSI driver written from the public specification:
// identity and node service, and the registration that a kubelet expects. It is
// the peer of tests, in their process or in one of its own.
//
// A volume is a folder, bound to where it is staged and published; an inline one is
// memory. A block volume is a file, or the device its attribute "device" names.
// What is mounted is all the state there is: the driver may be killed and started
// again at any time.
//
// Below its root it keeps a file "calls", a line for each call, and reads a file
// "faults" at each call, with lines METHOD FAULT: "fail CODE" fails, "stall" takes
// the call and answers when the caller has given up, "lie" does nothing and says it did;
// "abnormal TEXT" has NodeGetVolumeStats say that the volume is not well.
package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config of a driver.
type Config struct {
	Name, NodeID string
	// Root is a folder of its own.
	Root string
	// Capabilities of the node service.
	Capabilities []csi.NodeServiceCapability_RPC_Type
	MaxVolumes   int64
	Topology     map[string]string
	// Endpoint and Registration are the sockets it listens at. They are made again.
	Endpoint, Registration string
	// Done is called when a call of the node service was carried out, before it is
	// answered; nil for nothing.
	Done func(method string)
}

// Driver is a CSI driver. Make it with Start.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	cfg     Config
	servers []*grpc.Server

	mu   sync.Mutex
	last map[string]any // request by method
	told []*registration.RegistrationStatus
}

// Start serves until Stop. The registration socket comes last: whoever sees it can
// call the driver.
func Start(cfg Config) (*Driver, error) {
	d := &Driver{cfg: cfg, last: map[string]any{}}
	if err := os.MkdirAll(filepath.Join(cfg.Root, "volumes"), 0o755); err != nil {
		return nil, err
	}
	for _, path := range []string{cfg.Endpoint, cfg.Registration} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return nil, err
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			return nil, err
		}
		server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
		if path == cfg.Endpoint {
			csi.RegisterIdentityServer(server, d)
			csi.RegisterNodeServer(server, d)
		} else {
			registration.RegisterRegistrationServer(server, d)
		}
		d.servers = append(d.servers, server)
		go server.Serve(listener) //nolint:errcheck // it ends with Stop
	}
	return d, nil
}

// Stop ends the driver and removes its sockets; what it mounted stays.
func (d *Driver) Stop() {
	for _, s := range d.servers {
		s.Stop()
	}
}

// SetMaxVolumes has NodeGetInfo answer another limit from now on.
func (d *Driver) SetMaxVolumes(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.MaxVolumes = n
}

// Last is the last request of a method, nil for none.
func (d *Driver) Last(method string) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last[method]
}

// Told is what the driver was told of its registration.
func (d *Driver) Told() []*registration.RegistrationStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*registration.RegistrationStatus(nil), d.told...)
}

// Calls lists what was asked: "METHOD VOLUME", but for questions about the driver.
func Calls(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "calls"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), err
}

// Faults sets the faults of the driver with this root, replacing those there are.
func Faults(root string, lines ...string) error {
	temporary := filepath.Join(root, "faults.new")
	if err := os.WriteFile(temporary, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(root, "faults"))
}

func (d *Driver) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	d.mu.Lock()
	d.last[method] = req
	d.mu.Unlock()
	fault, argument, err := d.fault(method) // before the call is known of: faults may change then
	if err != nil {
		return nil, err
	}
	if of, ok := req.(interface{ GetVolumeId() string }); ok {
		if err := d.note(method + " " + of.GetVolumeId()); err != nil {
			return nil, err
		}
	}
	switch fault {
	case "fail":
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(`"` + argument + `"`)); err != nil {
			return nil, err
		}
		return nil, status.Errorf(code, "%s fails as it was told to", method)
	case "stall":
		<-ctx.Done()
		return nil, ctx.Err()
	case "lie":
		return lies[method](), nil
	}
	resp, err := handle(ctx, req)
	if d.cfg.Done != nil {
		d.cfg.Done(method)
	}
	return resp, err
}

var lies = map[string]func() any{
	"NodeStageVolume":     func() any { return &csi.NodeStageVolumeResponse{} },
	"NodeUnstageVolume":   func() any { return &csi.NodeUnstageVolumeResponse{} },
	"NodePublishVolume":   func() any { return &csi.NodePublishVolumeResponse{} },
	"NodeUnpublishVolume": func() any { return &csi.NodeUnpublishVolumeResponse{} },
}

func (d *Driver) note(line string) error {
	f, err := os.OpenFile(filepath.Join(d.cfg.Root, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

func (d *Driver) fault(method string) (fault, argument string, err error) {
	text, err := os.ReadFile(filepath.Join(d.cfg.Root, "faults"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(text)) {
		words := append(strings.Fields(line), "", "", "")
		if words[0] == method {
			return words[1], words[2], nil
		}
	}
	return "", "", nil
}

// GetInfo implements registration.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.cfg.Name, Endpoint: d.cfg.Endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus implements registration.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, s)
	return &registration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo implements csi.Identity.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.cfg.Name, VendorVersion: "1"}, nil
}

// GetPluginCapabilities implements csi.Identity.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe implements csi.Identity.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// NodeGetInfo implements csi.Node.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &csi.NodeGetInfoResponse{NodeId: d.cfg.NodeID, MaxVolumesPerNode: d.cfg.MaxVolumes}
	if len(d.cfg.Topology) > 0 {
		r.AccessibleTopology = &csi.Topology{Segments: d.cfg.Topology}
	}
	return r, nil
}

// NodeGetCapabilities implements csi.Node.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range d.cfg.Capabilities {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return r, nil
}

// Data is where a volume's files are.
func Data(root, volume string) string { return filepath.Join(root, "volumes", volume) }

func (d *Driver) has(c csi.NodeServiceCapability_RPC_Type) bool {
	for _, have := range d.cfg.Capabilities {
		if have == c {
			return true
		}
	}
	return false
}

// NodeStageVolume implements csi.Node.
func (d *Driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume_id, staging_target_path and volume_capability are required")
	}
	if r.GetVolumeCapability().GetBlock() == nil {
		if err := bindFolder(Data(d.cfg.Root, r.GetVolumeId()), r.GetStagingTargetPath(), 0); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume implements csi.Node.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := unmountAll(r.GetStagingTargetPath()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume implements csi.Node.
func (d *Driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target := r.GetTargetPath()
	if r.GetVolumeId() == "" || target == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume_id, target_path and volume_capability are required")
	}
	var flags uintptr
	if r.GetReadonly() {
		flags = unix.MS_RDONLY
	}
	inline := r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true"
	var err error
	switch {
	case r.GetVolumeCapability().GetBlock() != nil:
		err = d.publishBlock(r, target)
	case inline:
		err = memory(target, flags)
	case d.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME):
		var staged bool
		if staged, err = mounted(r.GetStagingTargetPath()); err == nil && !staged {
			return nil, status.Error(codes.FailedPrecondition, "the volume is not staged")
		}
		if err == nil {
			err = bindFolder(r.GetStagingTargetPath(), target, flags)
		}
	default:
		err = bindFolder(Data(d.cfg.Root, r.GetVolumeId()), target, flags)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if tokens := r.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"]; tokens != "" && !r.GetReadonly() {
		if err := os.WriteFile(filepath.Join(target, "tokens"), []byte(tokens), 0o644); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *Driver) publishBlock(r *csi.NodePublishVolumeRequest, target string) error {
	source := r.GetVolumeContext()["device"]
	if source == "" {
		source = Data(d.cfg.Root, r.GetVolumeId()) + ".img"
		f, err := os.OpenFile(source, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Truncate(1<<20), f.Close()); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return bind(source, target, 0)
}

// NodeUnpublishVolume implements csi.Node.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	err := unmountAll(r.GetTargetPath())
	if err == nil {
		err = os.Remove(r.GetTargetPath())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume implements csi.Node.
func (d *Driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

// NodeGetVolumeStats implements csi.Node.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if there, err := mounted(r.GetVolumePath()); err != nil || !there {
		return nil, status.Errorf(codes.NotFound, "%s is not published (%v)", r.GetVolumePath(), err)
	}
	fault, argument, err := d.fault("NodeGetVolumeStats")
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{
		Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: 1000, Available: 900, Used: 100},
			{Unit: csi.VolumeUsage_INODES, Total: 10, Available: 9, Used: 1},
		},
		VolumeCondition: &csi.VolumeCondition{Abnormal: fault == "abnormal", Message: argument},
	}, nil
}

func mounted(path string) (bool, error) {
	there, err := mountinfo.Mounted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return there, err
}

func bindFolder(source, target string, flags uintptr) error {
	for _, dir := range []string{source, target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return bind(source, target, flags)
}

// bind mounts one path at another, unless something is mounted there.
func bind(source, target string, flags uintptr) error {
	if there, err := mounted(target); err != nil || there {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if flags == 0 {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
}

func memory(target string, flags uintptr) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if there, err := mounted(target); err != nil || there {
		return err
	}
	return unix.Mount("tmpfs", target, "tmpfs", flags, "size=1m")
}

func unmountAll(path string) error {
	for {
		there, err := mounted(path)
		if err != nil || !there {
			return err
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}
