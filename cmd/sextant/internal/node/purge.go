package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/cmd/sextant/internal/gate"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/localruntime"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// EnsureRuntime starts the node's private containerd and imports the archives
// of a folder into it.
func (p *Plan) EnsureRuntime(ctx context.Context, images string) (remark string, err error) {
	if err := os.MkdirAll(p.Local.Dir, 0o755); err != nil {
		return "", err
	}
	runtime, err := localruntime.Ensure(ctx, p.Local.Config())
	if err != nil {
		return "", err
	}
	archives, err := filepath.Glob(filepath.Join(images, "*.tar"))
	if err != nil {
		return "", err
	}
	for _, archive := range archives {
		name := "sextant.local/" + strings.TrimSuffix(filepath.Base(archive), ".tar") + ":v1"
		if has, err := runtime.HasImage(ctx, name); err == nil && has {
			continue
		}
		if err := runtime.ImportImage(ctx, archive, name); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s, %s", runtime.Version(), runtime.Endpoint()), nil
}

// PodUIDs are the node's pods: those podworker knows, and those that have a folder
// below the root directory, for podworker may be down already.
func (p *Plan) PodUIDs(ctx context.Context) []string {
	uids := p.servedPods(ctx)
	entries, _ := os.ReadDir(filepath.Join(p.RootDir, "pods")) // none where there is no such folder
	for _, e := range entries {
		if !slices.Contains(uids, e.Name()) {
			uids = append(uids, e.Name())
		}
	}
	return uids
}

// servedPods are the pods podworker knows; none if it does not answer.
func (p *Plan) servedPods(ctx context.Context) []string {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: p.Paths().Socket(house.PodWorker), Timeout: 2 * time.Second})
	if err != nil {
		return nil
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	m := feed.NewMirror(feed.MirrorConfig{
		Feed: house.PodWorkerPods, Puller: feed.Remote{Client: feedv1.NewFeedServiceClient(conn)},
	}, feed.Message[*podworkerv1.PodState])
	if err := m.Pull(ctx); err != nil {
		return nil
	}
	return slices.Collect(maps.Keys(m.Items()))
}

// Purge removes what the node leaves behind once its services are stopped. A
// runtime that is not the node's own loses only this node's pods.
func (p *Plan) Purge(ctx context.Context, pods []string) error {
	var all []error
	if p.Local != nil {
		all = append(all, localruntime.Teardown(ctx, p.Local.Config()))
	} else {
		all = append(all, removePods(ctx, p.Endpoint, pods))
	}
	all = append(all, unmountBelow(p.RootDir), p.unshare(), p.stopSlices(ctx), gate.Undo(gate.DropIn), p.removeCgroups(ctx), p.leaveSharedRoot(ctx, pods), p.removePodFiles(pods))
	if p.Units {
		all = append(all, p.removePrepared())
	}
	for _, dir := range append([]string{p.Run}, p.Disposable...) {
		all = append(all, unmountBelow(dir), os.RemoveAll(dir))
	}
	return errors.Join(all...)
}

// removePods removes this node's pods from a runtime that stays. podworker is
// stopped by now, so this is the only connection to the runtime.
func removePods(ctx context.Context, endpoint string, uids []string) error {
	if len(uids) == 0 {
		return nil
	}
	conn, err := localruntime.Dial(strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var all []error
	for _, s := range list.GetItems() {
		if !slices.Contains(uids, s.GetLabels()[pod.PodUIDLabel]) {
			continue
		}
		all = append(all, removeSandbox(ctx, runtime, s.GetId()))
	}
	return errors.Join(all...)
}

// removeLimit and removePause are how long and how often a sandbox is tried to
// be removed.
const (
	removeLimit = 15 * time.Second
	removePause = 200 * time.Millisecond
)

// removeSandbox tries until the sandbox is gone: a removal that podworker began
// may still be going on in the runtime, and containerd 1.6 fails one whose
// container ends in that moment.
func removeSandbox(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	tick := time.NewTicker(removePause)
	defer tick.Stop()
	for {
		_, err := runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		if err == nil {
			_, err = runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		}
		if err == nil || status.Code(err) == codes.NotFound {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove sandbox %s: %w", id, err)
		case <-tick.C:
		}
	}
}

// unmountBelow unmounts everything below a folder, deepest first.
func unmountBelow(dir string) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	slices.SortFunc(points, func(a, b mountPoint) int { return cmp.Compare(len(b.path), len(a.path)) })
	var all []error
	for _, m := range points {
		if m.path == dir || !within(m.path, dir) {
			continue
		}
		if err := unix.Unmount(m.path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			all = append(all, fmt.Errorf("unmount %s: %w", m.path, err))
		}
	}
	return errors.Join(all...)
}

// removePodFiles removes the pods' folders, logs and log links.
func (p *Plan) removePodFiles(uids []string) error {
	var all []error
	for _, uid := range uids {
		all = append(all, os.RemoveAll(filepath.Join(p.RootDir, "pods", uid)))
		logs, err := filepath.Glob(filepath.Join(p.PodLogsDir, "*_"+uid))
		all = append(all, err)
		for _, dir := range logs {
			all = append(all, os.RemoveAll(dir))
		}
	}
	links, err := os.ReadDir(p.LinksDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		all = append(all, err)
	}
	for _, link := range links {
		path := filepath.Join(p.LinksDir, link.Name())
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			all = append(all, os.Remove(path)) // its log is gone
		}
	}
	return errors.Join(all...)
}
