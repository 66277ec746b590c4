// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// preStartLimit is longer than resource waits for one plugin (the kubelet's 30 seconds).
const preStartLimit = 40 * time.Second

// plugins asks resource, which has the connections to device plugins.
type plugins struct {
	resource resourcev1.ResourceServiceClient
}

// dialDevices opens a connection of its own: its calls may take longer than others.
func dialDevices(paths house.Paths) (plugins, error) {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: paths.Socket(house.Resource), Timeout: preStartLimit})
	return plugins{resourcev1.NewResourceServiceClient(conn)}, err
}

// PreStart implements actuate.Devices.
func (p plugins) PreStart(ctx context.Context, uid types.UID, container string) error {
	_, err := p.resource.PreStart(ctx, &resourcev1.PreStartRequest{Uid: string(uid), Container: container})
	return err
}
