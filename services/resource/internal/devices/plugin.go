// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// dialLimit bounds the dialling and the first call (the kubelet's limit for dialling).
const dialLimit = 10 * time.Second

// ErrAway is in the errors of calls that no plugin answered.
var ErrAway = errors.New("the device plugin does not answer")

// plugin is a connection to one instance of a plugin.
type plugin struct {
	resource, socket string
	api              pluginapi.DevicePluginClient
	options          *pluginapi.DevicePluginOptions
	// hung is why it is hung, empty when it is not: another instance is not hung for that.
	// Manager.mu guards it.
	hung string
	// life ends with the connection, which stop ends.
	life context.Context
	stop context.CancelFunc
}

// connect dials a socket and reads the plugin's options. The connection ends with ctx.
func connect(ctx context.Context, resource, socket string) (*plugin, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	p := &plugin{resource: resource, socket: socket, api: pluginapi.NewDevicePluginClient(conn)}
	p.life, p.stop = context.WithCancel(ctx)
	context.AfterFunc(p.life, func() { _ = conn.Close() }) // nothing to lose
	limited, cancel := context.WithTimeout(p.life, dialLimit)
	defer cancel()
	if p.options, err = p.api.GetDevicePluginOptions(limited, &pluginapi.Empty{}, grpc.WaitForReady(true)); err != nil {
		p.stop()
		return nil, fmt.Errorf("device plugin of %s at %s: failed to get device plugin options: %w", resource, socket, err)
	}
	return p, nil
}

// follow gives every list of devices to took, until the stream ends.
func (p *plugin) follow(took func([]*pluginapi.Device)) error {
	stream, err := p.api.ListAndWatch(p.life, &pluginapi.Empty{})
	if err != nil {
		return err
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return err
		}
		took(list.GetDevices())
	}
}

// parting is how long after a call that may have been lost the plugin's end is waited for:
// follow notices it by itself, and at once.
const parting = time.Second

// lost reports whether a call has failed because the plugin has gone, or another instance has
// taken its place. One that goes on may answer with the same codes.
func (p *plugin) lost(err error) bool {
	if code := status.Code(err); code != codes.Unavailable && code != codes.Canceled {
		return false
	}
	select {
	case <-p.life.Done():
		return true
	case <-time.After(parting):
		return false
	}
}

// device is what a plugin says of a device.
func device(d *pluginapi.Device) Device {
	out := Device{ID: d.GetID(), Healthy: d.GetHealth() == pluginapi.Healthy, NUMA: d.GetTopology() != nil}
	for _, n := range d.GetTopology().GetNodes() {
		out.Nodes = append(out.Nodes, int(n.GetID()))
	}
	return out
}
