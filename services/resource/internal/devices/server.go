// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/services/resource/internal/rootsocket"
)

// Serve serves kubelet.sock until ctx ends. First it removes every socket of the folder, by
// which plugins notice that they are to register again.
func (m *Manager) Serve(ctx context.Context) error {
	if err := os.MkdirAll(m.cfg.Dir, 0o750); err != nil {
		return err
	}
	if err := removeSockets(m.cfg.Dir); err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	path := filepath.Join(m.cfg.Dir, filepath.Base(pluginapi.KubeletSocket))
	listener, err := rootsocket.Listen(path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, &registrar{m: m, ctx: ctx})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := file.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// registrar is the service that plugins register at.
type registrar struct {
	pluginapi.UnimplementedRegistrationServer
	m *Manager
	// ctx is the life of the connections to plugins.
	ctx context.Context
}

// Register implements the Registration service. Options in the request are ignored, as by a
// kubelet: the plugin is asked for them.
func (r *registrar) Register(_ context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	err := supported([]string{req.GetVersion()})
	if err == nil && !filepath.IsLocal(req.GetEndpoint()) {
		err = fmt.Errorf("endpoint: %q: want the name of a socket in %s", quiet.Cut(req.GetEndpoint(), 256), r.m.cfg.Dir)
	}
	if err == nil {
		err = r.m.register(r.ctx, req.GetResourceName(), filepath.Join(r.m.cfg.Dir, req.GetEndpoint()))
	}
	if err != nil {
		r.m.cfg.Log.Warn("device plugin not registered", "resource", quiet.Cut(req.GetResourceName(), 256), "error", quiet.Cut(err.Error(), 1024))
		return nil, err
	}
	return &pluginapi.Empty{}, nil
}

func supported(versions []string) error {
	if slices.Contains(versions, pluginapi.Version) {
		return nil
	}
	return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", quiet.Cut(fmt.Sprint(versions), 256), pluginapi.SupportedVersions)
}

// Registration takes in device plugins that register in the folder of all plugins.
func (m *Manager) Registration(ctx context.Context) (kind string, t pluginregistration.Type) {
	return registration.DevicePlugin, pluginregistration.Type{
		Register: func(_ context.Context, p pluginregistration.Plugin) error {
			if err := supported(p.Versions); err != nil {
				return err
			}
			return m.register(ctx, p.Name, p.Endpoint)
		},
		Unregister: func(p pluginregistration.Plugin) { m.unregister(p.Name, p.Endpoint) },
	}
}
