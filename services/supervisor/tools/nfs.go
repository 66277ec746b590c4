// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// MountNFS implements ToolsServiceServer.
func (s *Server) MountNFS(ctx context.Context, r *supervisorv1.MountNFSRequest) (*supervisorv1.MountNFSResponse, error) {
	if err := checkNFS(r); err != nil {
		return nil, err
	}
	root, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, pod.Layout{Root: root}.Volume(types.UID(r.GetPodUid()), "kubernetes.io/nfs", r.GetVolume()))
	if err != nil {
		return nil, err
	}
	err = s.runner.do(ctx, filepath.Join(root, rel), "NFS server "+r.GetServer(), func(t *tools) error {
		return t.mountNFS(root, rel, r)
	})
	return &supervisorv1.MountNFSResponse{}, err
}

func (t *tools) mountNFS(root, rel string, r *supervisorv1.MountNFSRequest) error {
	if there, err := mounted(root, rel); err != nil || there {
		return err
	}
	target := filepath.Join(root, rel)
	args := nfsArgs(r, target)
	out, err := t.run("mount", args...)
	there, looked := mounted(root, rel)
	switch {
	case err == nil && looked == nil && !there:
		return rpc.Conflict.Errorf("mount failed: nothing is mounted at %s, though mount succeeded (with the option bg it retries in the background)\nOutput: %s", target, out)
	case err == nil:
		return looked
	case looked == nil && there: // half done
		err = errors.Join(err, unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH))
	}
	var failed *failure
	if errors.As(err, &failed) {
		return rpc.Conflict.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s", failed.err, strings.Join(args, " "), failed.output)
	}
	return err
}

// nfsArgs are mount(8)'s.
func nfsArgs(r *supervisorv1.MountNFSRequest, target string) []string {
	server := r.GetServer()
	if ip := net.ParseIP(server); ip != nil && strings.Contains(server, ":") {
		server = "[" + server + "]"
	}
	args := []string{"-t", "nfs"}
	if len(r.GetOptions()) > 0 {
		args = append(args, "-o", strings.Join(r.GetOptions(), ","))
	}
	return append(args, "--", server+":"+r.GetPath(), target)
}

// mounted reports whether something is mounted on a folder below a root, which must
// exist and be reachable without links. The mounted file system is not touched.
func mounted(root, rel string) (bool, error) {
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("%s: %w", root, err)
	}
	defer unix.Close(at) //nolint:errcheck // opened by path only
	path := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	parent, err := unix.Openat2(at, filepath.Dir(rel), &path)
	if err != nil {
		return false, rpc.Conflict.Errorf("%s: %w", filepath.Join(root, filepath.Dir(rel)), err)
	}
	defer unix.Close(parent) //nolint:errcheck // opened by path only
	path.Resolve |= unix.RESOLVE_NO_XDEV
	fd, err := unix.Openat2(parent, filepath.Base(rel), &path)
	if errors.Is(err, unix.EXDEV) {
		return true, nil
	}
	if err != nil {
		return false, rpc.Conflict.Errorf("%s: %w", filepath.Join(root, rel), err)
	}
	return false, unix.Close(fd)
}
