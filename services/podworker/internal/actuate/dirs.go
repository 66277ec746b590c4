// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/mounts"
	"github.com/sextant-node/sextant/pkg/pod"
)

// Modes of what is made here. Log directories hand their group on, so that a log
// the runtime creates for its group only is readable by podworker.
const (
	dirMode    fs.FileMode = 0o750
	logDirMode fs.FileMode = 0o755
)

// makePodDirs makes the pod's directory and its log directory.
func (a *files) makePodDirs(p *v1.Pod) error {
	if err := os.MkdirAll(a.layout.Pod(p.UID), dirMode); err != nil {
		return err
	}
	return makeLogDir(pod.PodLogDir(a.cfg.PodLogsDir, p.Namespace, p.Name, p.UID))
}

func makeLogDir(path string) error {
	err := os.Mkdir(path, logDirMode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(path), logDirMode); err != nil {
			return err
		}
		err = os.Mkdir(path, logDirMode)
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, logDirMode|fs.ModeSetgid) // mkdir(2) drops the bit, and the umask others
}

// makeContainerDirs makes the directories of one container.
func (a *files) makeContainerDirs(p *v1.Pod, container string) error {
	if err := a.makePodDirs(p); err != nil {
		return err
	}
	if err := os.MkdirAll(a.layout.Container(p.UID, container), dirMode); err != nil {
		return err
	}
	return makeLogDir(pod.ContainerLogDir(a.cfg.PodLogsDir, p.Namespace, p.Name, p.UID, container))
}

// CleanPodDirs removes what is left of a pod on the disk: its directory, its
// logs and their links. Volumes must be gone; what is not empty of them is an
// error and stays untouched. The pod may carry no more than name, namespace and
// UID.
func (a *files) CleanPodDirs(_ context.Context, p *v1.Pod) error {
	if p.UID == "" || strings.ContainsAny(string(p.UID), "/") || p.UID == "." || p.UID == ".." {
		return fmt.Errorf("clean pod directories: bad UID %q", p.UID)
	}
	a.metrics.userPods.forget(p.UID)
	logs := pod.PodLogDir(a.cfg.PodLogsDir, p.Namespace, p.Name, p.UID)
	return errors.Join(a.removePodDir(p), a.removeLinks(p, logs), os.RemoveAll(logs))
}

func (a *files) removePodDir(p *v1.Pod) error {
	dir := a.layout.Pod(p.UID)
	if err := mounts.RemoveTree(a.layout.Containers(p.UID)); err != nil {
		return err
	}
	ids := a.layout.UserNamespace(p.UID)
	aside, _ := filepath.Glob(ids + ".damaged-*") // the pattern is a good one
	for _, path := range append(aside, a.layout.EtcHosts(p.UID), ids, ids+file.Half) {
		if err := file.Remove(path); err != nil {
			return err
		}
	}
	// The rest belongs to volumes. Only empty directories go: below one that is
	// not, something may still be mounted.
	for _, rest := range []string{a.layout.Volumes(p.UID), a.layout.VolumeSubpaths(p.UID), a.layout.VolumeDevices(p.UID), a.layout.Plugins(p.UID)} {
		if err := removeEmpty(rest); err != nil {
			return err
		}
	}
	return file.Remove(dir)
}

// removeEmpty removes a directory and directories in it as far as they are
// empty.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeEmpty(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}

// removeLinks removes the legacy links into a pod's logs.
func (a *files) removeLinks(p *v1.Pod, logs string) error {
	entries, err := os.ReadDir(a.cfg.LegacyLogsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed error
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || !strings.HasPrefix(e.Name(), p.Name+"_") {
			continue
		}
		link := filepath.Join(a.cfg.LegacyLogsDir, e.Name())
		if target, err := os.Readlink(link); err != nil || !strings.HasPrefix(target, logs+"/") {
			continue
		}
		if err := file.Remove(link); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// RestartCountFromLogs is the restart count to go on with when neither the
// runtime nor anybody else remembers one: after the highest log there is.
func (a *files) RestartCountFromLogs(p *v1.Pod, container string) int {
	entries, err := os.ReadDir(pod.ContainerLogDir(a.cfg.PodLogsDir, p.Namespace, p.Name, p.UID, container))
	if err != nil {
		return 0
	}
	next := 0
	for _, e := range entries {
		if n, ok := pod.ParseLogFileName(e.Name()); ok {
			next = max(next, n+1)
		}
	}
	return next
}
