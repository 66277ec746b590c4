// SPDX-License-Identifier: Apache-2.0

package supervisor

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
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/containerd"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// PodUIDs are the node's pods: those podworker knows, and those that have a folder
// below the root directory, for podworker may be down already. Names that are no UIDs
// are left out, because files, mounts and cgroups are removed by name.
func (p *Plan) PodUIDs(ctx context.Context) []string {
	uids := servedPods(ctx, p.Paths())
	entries, _ := os.ReadDir(filepath.Join(p.RootDir, "pods")) // none where there is no such folder
	for _, e := range entries {
		uids = append(uids, e.Name())
	}
	slices.Sort(uids)
	return slices.DeleteFunc(slices.Compact(uids), func(uid string) bool { return !isPodUID().MatchString(uid) })
}

// isPodUID matches the UIDs of the API server, and the hashes of static pods. Such a
// name is safe as a folder, in a pattern and as a cgroup.
var isPodUID = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`)

// servedPods are the pods podworker knows; none if it does not answer.
func servedPods(ctx context.Context, at house.Paths) []string {
	pods, err := service.Pull(ctx, at, house.PodWorkerPods, feed.Whole[*podworkerv1.PodState])
	if err != nil {
		return nil
	}
	return slices.Collect(maps.Keys(pods))
}

// removePods removes this node's pods from the runtime, and returns those that may be there
// still. podworker is stopped by now, so this is the only connection to the runtime.
func removePods(ctx context.Context, endpoint string, uids []string, each removal) (left []string, err error) {
	if len(uids) == 0 {
		return nil, nil
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return uids, err
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return uids, err
	}
	var mu sync.Mutex // guards left and all
	var all []error
	var removals errgroup.Group
	removals.SetLimit(removalsAtOnce)
	for _, s := range list.GetItems() {
		uid := s.GetLabels()[pod.PodUIDLabel]
		if !slices.Contains(uids, uid) {
			continue
		}
		removals.Go(func() error {
			if err := each.remove(ctx, conn, s.GetId()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				left, all = append(left, uid), append(all, err)
			}
			return nil
		})
	}
	_ = removals.Wait() // what failed is in all
	return left, errors.Join(all...)
}

// removalsAtOnce is how many sandboxes are removed at a time.
const removalsAtOnce = 8

// sandboxRemoval is far more than a removal takes.
var sandboxRemoval = removal{try: 10 * time.Second, limit: time.Minute, pause: 200 * time.Millisecond}

// removal bounds the removal of a sandbox: each try, all tries, and the pause between them.
type removal struct{ try, limit, pause time.Duration }

// remove tries until the sandbox is gone: a removal that podworker began may still be going
// on in the runtime, and containerd 1.6 fails one whose container ends in that moment. A
// call that does not return is made again: containerd 2.4 has been seen to wait for the end
// of a killed container until its caller gave up, and to remove it at the next call.
func (r removal) remove(ctx context.Context, conn *grpc.ClientConn, id string) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	tick := time.NewTicker(r.pause)
	defer tick.Stop()
	for {
		err := r.once(ctx, conn, id)
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

// once stops and removes the sandbox, in one try.
func (r removal) once(ctx context.Context, conn *grpc.ClientConn, id string) error {
	ctx, cancel := context.WithTimeout(ctx, r.try)
	defer cancel()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	if _, err := runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	_, err := runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if status.Code(err) != codes.FailedPrecondition {
		return err
	}
	// It cannot be removed for one of its containers.
	list, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
	if err != nil {
		return err
	}
	for _, c := range list.GetContainers() {
		_, err := containerd.Remove(ctx, c.GetId(), func(ctx context.Context, method string, request, reply any) error {
			return conn.Invoke(ctx, method, request, reply)
		})
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
	}
	_, err = runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// unmountBelow unmounts everything below a folder of root's, deepest first. It may be a link
// to another disk: the mount table has the folder that it leads to.
func unmountBelow(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	points, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	slices.SortFunc(points, func(a, b *mountinfo.Info) int { return cmp.Compare(len(b.Mountpoint), len(a.Mountpoint)) })
	var all []error
	for _, m := range points {
		if m.Mountpoint == dir || !within(m.Mountpoint, dir) {
			continue
		}
		if err := unmount(m.Mountpoint); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			all = append(all, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(all...)
}

// unmount unmounts what the mount table has at a path. The table's paths have no links;
// if a folder of the path has been replaced by a link since, the path is not followed.
func unmount(path string) error {
	dir, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(path), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(dir) //nolint:errcheck // a path only
	return unix.Unmount(fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}
