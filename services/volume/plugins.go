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
	reapers  map[string]signal.Signal // by driver; see reap
}

func newPlugins(kit *service.Kit, root string, host Host, file *store.Store, now func() time.Time, observe csi.Observe) (*madePlugins, error) {
	m := &madePlugins{kit: kit, layout: pod.Layout{Root: root}, changed: signal.New(), reapers: map[string]signal.Signal{}}
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
func (m *madePlugins) run(node *nodeItem) func(context.Context) error {
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
			m.reap(ctx, node)
			select {
			case <-ctx.Done():
				return nil
			case <-m.changed:
			}
			node.pods.again(func(w *podWork) bool {
				return slices.ContainsFunc(w.pod.Spec.Volumes, func(v v1.Volume) bool { return v.CSI != nil || volumetype.Indirect(w.pod, &v) })
			})
		}
	}
}

// reap has drivers unstage what no pod uses, and tries again those that did not: a volume
// that is staged is in use, and is attached to no other node. Each has a goroutine of its own,
// so that one that hangs holds up no other. Only run's goroutine calls it.
func (m *madePlugins) reap(ctx context.Context, node *nodeItem) {
	for _, d := range m.drivers.List() {
		if wake, ok := m.reapers[d.Name]; ok {
			wake.Send()
			continue
		}
		wake := signal.New()
		m.reapers[d.Name] = wake
		node.pods.background(func() {
			retries.Work(ctx, wake, func(context.Context) bool {
				err := m.csi.Reap(context.Background(), d.Name)
				if err != nil {
					m.kit.Log.Warn("volumes that no pod uses are staged still", "driver", d.Name, "error", err.Error())
				}
				node.publish(ctx)
				return err == nil
			})
		})
	}
}
