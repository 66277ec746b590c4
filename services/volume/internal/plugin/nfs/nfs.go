// SPDX-License-Identifier: Apache-2.0

// Package nfs makes NFS volumes, with root's mount.nfs(8).
package nfs

import (
	"context"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// limit is how long the mount of an export may take. mount.nfs(8) gives up after two
// minutes by default.
const limit = 2*time.Minute + 30*time.Second

// Host has the folders they are mounted on.
type Host interface {
	Point(uid types.UID, plugin, volume, name string) (path string, there bool, err error)
	Mounted(uid types.UID, plugin, volume string, own bool) (path string, ok bool)
}

// Tools runs mount.nfs(8); supervisorv1.ToolsServiceClient is the real one.
type Tools interface {
	MountNFS(ctx context.Context, r *supervisorv1.MountNFSRequest, o ...grpc.CallOption) (*supervisorv1.MountNFSResponse, error)
}

// Plugin is a plugin.Plugin.
type Plugin struct {
	Host  Host
	Tools Tools
}

// Standing implements plugin.Plugin.
func (n Plugin) Standing(p *v1.Pod, v *v1.Volume) (plugin.Made, bool) {
	path, ok := n.Host.Mounted(p.UID, volumetype.NFS, v.Name, v.NFS != nil)
	return plugin.Made{Path: path}, ok
}

// Make implements plugin.Plugin. What is mounted is left alone: its server may be gone,
// and its options are not changed under a pod.
func (n Plugin) Make(ctx context.Context, r *plugin.Request) (m plugin.Made, err error) {
	m.Path, err = n.mount(ctx, r)
	return m, err
}

func (n Plugin) mount(ctx context.Context, r *plugin.Request) (string, error) {
	path, there, err := n.Host.Point(r.Pod.UID, volumetype.NFS, r.Volume.Name, r.Name())
	if err != nil || there {
		return path, err
	}
	if err := fault.Hit(ctx, "volume.nfs"); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, stop := r.WhileWanted(ctx)
	defer stop()
	source, options := r.Volume.NFS, []string(nil)
	readOnly := source != nil && source.ReadOnly
	if r.Source != nil {
		source, options, readOnly = r.Source.Volume.Spec.NFS, plugin.MountOptions(r.Source.Volume), r.Source.ReadOnly
	}
	if readOnly {
		options = plugin.Join(options, "ro")
	}
	_, err = n.Tools.MountNFS(ctx, &supervisorv1.MountNFSRequest{
		PodUid: string(r.Pod.UID), Volume: r.Name(), Server: source.Server, Path: source.Path, Options: options,
	})
	return path, err
}
