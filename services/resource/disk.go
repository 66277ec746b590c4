// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
)

// imagesTimeout bounds what the runtime may hold a reading up.
const imagesTimeout = 2 * time.Second

func (r *readings) readFileSystems(ctx context.Context, at time.Time) *fileSystems {
	f := &fileSystems{usage: &resourcev1.DiskUsage{Time: timestamppb.New(at)}}
	node, err := gauge.FileSystemOf(r.node.rootDir)
	if err != nil {
		f.errors = append(f.errors, err.Error())
	}
	f.usage.Node = node
	if err := r.readImages(ctx, f.usage); err != nil {
		f.errors = append(f.errors, "image file systems: "+err.Error())
	}
	return f
}

// readFiles measures what pods' logs take.
func (r *readings) readFiles(now *settings) []*resourcev1.PodFiles {
	layout := pod.Layout{Root: r.node.rootDir}
	targets := r.targets()
	all := make([]*resourcev1.PodFiles, 0, len(targets))
	for _, t := range targets {
		all = append(all, podFiles(layout, now.conf.Kubelet.PodLogsDir, t))
	}
	return all
}

// readImages asks the runtime where it keeps images and layers and how much that
// is, and the kernel how much there could be.
func (r *readings) readImages(ctx context.Context, usage *resourcev1.DiskUsage) error {
	// Those who share the reading do not end with who asked first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), imagesTimeout)
	defer cancel()
	resp, err := r.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return err
	}
	first := func(all []*runtimeapi.FilesystemUsage) (*resourcev1.FileSystem, error) {
		var answer *resourcev1.FileSystem
		for _, f := range all {
			fs, err := gauge.FileSystemOf(f.GetFsId().GetMountpoint())
			if err != nil {
				return answer, err
			}
			fs.Used, fs.InodesUsed = f.GetUsedBytes().GetValue(), f.GetInodesUsed().GetValue()
			usage.Runtime = append(usage.Runtime, fs)
			if answer == nil {
				answer = fs
			}
		}
		return answer, nil
	}
	if usage.Image, err = first(resp.GetImageFilesystems()); err != nil {
		return err
	}
	if usage.Container, err = first(resp.GetContainerFilesystems()); err != nil {
		return err
	}
	if usage.GetContainer() == nil {
		usage.Container = usage.GetImage()
	}
	return nil
}

// podFiles measures a pod's logs and its hosts file.
func podFiles(layout pod.Layout, logs string, t target) *resourcev1.PodFiles {
	p := &resourcev1.PodFiles{Uid: t.uid, Namespace: t.namespace, Name: t.name}
	dir := pod.PodLogDir(logs, t.namespace, t.name, types.UID(t.uid))
	for _, name := range names(dir) {
		l := &resourcev1.ContainerLogs{Container: name}
		for _, file := range names(filepath.Join(dir, name)) {
			l.Bytes, l.Inodes = measured(l.GetBytes(), l.GetInodes(), filepath.Join(dir, name, file))
		}
		p.Logs = append(p.Logs, l)
	}
	p.OtherBytes, p.OtherInodes = measured(0, 0, layout.EtcHosts(types.UID(t.uid)))
	return p
}

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = e.Name()
	}
	return all
}

const block = 512 // stat(2): st_blocks

// measured adds what a plain file takes on disk; links lead elsewhere and are not followed.
func measured(bytes, inodes uint64, path string) (uint64, uint64) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return bytes, inodes
	}
	return bytes + uint64(st.Blocks)*block, inodes + 1
}

func (r *readings) ofSystems(ctx context.Context) *fileSystems {
	return r.systems.get(r.now, func(at time.Time) *fileSystems { return r.readFileSystems(ctx, at) })
}

// ofSystemsNow is ofSystems without one that was made before: no pod is evicted for want of
// what podworker has freed since.
func (r *readings) ofSystemsNow(ctx context.Context) *fileSystems {
	return r.systems.anew(r.now, func(at time.Time) *fileSystems { return r.readFileSystems(ctx, at) })
}

func (r *readings) ofFiles(now *settings) []*resourcev1.PodFiles {
	return r.files.get(r.now, func(time.Time) []*resourcev1.PodFiles { return r.readFiles(now) })
}
