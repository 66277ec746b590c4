// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/store"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/netdisk"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
	plugincsi "github.com/sextant-node/sextant/services/volume/internal/plugin/csi"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/disk"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/emptydir"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/files"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/hostpath"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/image"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/local"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/nfs"
)

// toolLimit is how long root's tools may take: logins, the wait for a device, a new file
// system. Plugins may set less.
const toolLimit = 5 * time.Minute

// madePlugins are the plugins of all types, and the CSI drivers of one of them.
type madePlugins struct {
	kit      *service.Kit
	layout   pod.Layout
	registry plugin.Registry
	drivers  *csi.Drivers
	csi      *csi.Manager
	changed  signal.Signal
}

func newPlugins(kit *service.Kit, root string, host Host, file *store.Store, now func() time.Time, observe csi.Observe) (*madePlugins, error) {
	m := &madePlugins{kit: kit, layout: pod.Layout{Root: root}, changed: signal.New()}
	boot, err := service.BootID()
	if err != nil {
		return nil, err
	}
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: kit.Paths.Tools(), Timeout: toolLimit})
	if err != nil {
		return nil, err
	}
	tools := supervisorv1.NewToolsServiceClient(conn)
	disks, err := netdisk.New(file, tools, boot)
	if err != nil {
		return nil, fmt.Errorf("disks: %w", err)
	}
	if m.drivers, err = csi.NewDrivers(file, observe, m.driverChanged, kit.Log); err != nil {
		return nil, fmt.Errorf("CSI drivers: %w", err)
	}
	m.csi, err = csi.New(csi.Config{
		Layout: m.layout, Drivers: m.drivers, Store: file, Boot: boot, Log: kit.Log,
		Give: func(path string, r *csi.Request) error {
			file, err := host.Give(path, int(*r.FSGroup), r.GroupOnMismatch)
			plugin.LogRefused(kit.Log, path, file)
			return err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("CSI volumes: %w", err)
	}
	api, locals := files.Plugin{Host: host, Now: now}, local.Plugin{Host: host, Log: kit.Log}
	m.registry = plugin.Registry{
		volumetype.EmptyDir:    emptydir.Plugin{Host: host},
		volumetype.HostPath:    hostpath.Plugin{Host: host},
		volumetype.ConfigMap:   api,
		volumetype.Secret:      api,
		volumetype.DownwardAPI: api,
		volumetype.Projected:   api,
		volumetype.Image:       image.Plugin{},
		volumetype.CSI:         plugincsi.Plugin{Host: host, Manager: m.csi, Now: now},
		volumetype.Local:       locals,
		volumetype.NFS:         nfs.Plugin{Host: host, Tools: tools},
		volumetype.ISCSI:       disk.Plugin{Type: volumetype.ISCSI, Host: host, Local: locals, Disks: disks},
		volumetype.FC:          disk.Plugin{Type: volumetype.FC, Host: host, Local: locals, Disks: disks},
	}
	return m, nil
}

// driverChanged signals that a driver came or went (csi.NewDrivers).
func (m *madePlugins) driverChanged(string) {
	m.changed.Send()
}

// run takes in CSI drivers that register, and follows those that come and go: volumes may
// wait for them, or be left for them to unstage.
func (m *madePlugins) run(node *nodeItem, left *reaper) func(context.Context) error {
	return func(ctx context.Context) error {
		registry := pluginregistration.New(pluginregistration.Config{
			Dir: m.layout.PluginsRegistry(), Log: m.kit.Log,
			Types: map[string]pluginregistration.Type{
				registration.CSIPlugin: {Register: m.drivers.Register, Unregister: m.drivers.Unregister},
			},
			Scanned: func(found []string) {
				m.drivers.Scanned(found)
				node.publish(context.Background())
				node.volumes.SetComplete(context.Background(), true)
			},
		})
		ended := make(chan struct{})
		defer func() { <-ended }()
		go func() {
			defer close(ended)
			if err := registry.Run(ctx); err != nil {
				m.kit.Log.Error("no CSI driver can register", "error", err.Error())
			}
		}()
		for {
			node.publish(ctx)
			left.look(ctx, true)
			select {
			case <-ctx.Done():
				return nil
			case <-m.changed:
			}
			node.pods.again(func(w *podWork) {
				if slices.ContainsFunc(w.pod.Spec.Volumes, func(v v1.Volume) bool { return v.CSI != nil || volumetype.Indirect(w.pod, &v) }) {
					w.touch()
				}
			})
		}
	}
}
