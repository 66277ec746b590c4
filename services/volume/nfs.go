package volume

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
)

// toolLimit is how long the mount of an export may take. mount.nfs(8) gives up after
// two minutes, if it is not told otherwise.
const toolLimit = 2*time.Minute + 30*time.Second

// newTools connects to what runs root's tools.
func newTools(kit *service.Kit) (supervisorv1.ToolsServiceClient, error) {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: kit.Paths.Tools(), Timeout: diskLimit})
	if err != nil {
		return nil, err
	}
	return supervisorv1.NewToolsServiceClient(conn), nil
}

// toolError says what a pod waits for when nobody runs tools.
func toolError(err error) error {
	if rpc.Is(err, rpc.Unavailable) && strings.Contains(err.Error(), "connect: ") {
		return fmt.Errorf("what runs mount.nfs, iscsiadm and mount for this service (the supervisor, sextant-tools.service) is not there: %w", err)
	}
	return err
}

// nfsVolume is an NFS export as a volume of a pod.
type nfsVolume struct {
	// Name on disk: the persistent volume's, or that in the pod.
	Name     string
	Source   *v1.NFSVolumeSource
	ReadOnly bool
	// Options of mount(8).
	Options []string
}

// nfs makes sure of an NFS volume. What is mounted is left alone: its server may be
// gone, and its options are not changed under a pod. A pod that leaves waits for no
// server.
func (s *Service) nfs(ctx context.Context, w *podWork, p *v1.Pod, v *v1.Volume, n nfsVolume) (string, error) {
	path, there, err := s.host.Point(p.UID, content.NFS, v.Name, n.Name)
	if err != nil || there {
		return path, err
	}
	if err := fault.Hit(ctx, "volume.nfs"); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	defer cancel()
	defer context.AfterFunc(w.leaving, cancel)()
	options := n.Options
	if n.ReadOnly {
		options = joined(options, "ro")
	}
	_, err = s.tools.MountNFS(ctx, &supervisorv1.MountNFSRequest{
		PodUid: string(p.UID), Volume: n.Name, Server: n.Source.Server, Path: n.Source.Path, Options: options,
	})
	return path, toolError(err)
}

// mountOptions of a persistent volume; the annotation is how they were asked for
// before there was a field, and comes first.
func mountOptions(pv *v1.PersistentVolume) []string {
	if text, ok := pv.Annotations[v1.MountOptionAnnotation]; ok {
		return joined(strings.Split(text, ","))
	}
	return joined(pv.Spec.MountOptions)
}

// joined are options, each once. One text may hold several.
func joined(options []string, more ...string) []string {
	var all []string
	seen := map[string]bool{"": true}
	for _, text := range append(append([]string(nil), options...), more...) {
		for _, o := range strings.Split(text, ",") {
			if !seen[o] {
				seen[o] = true
				all = append(all, o)
			}
		}
	}
	return all
}
