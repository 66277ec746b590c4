// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
)

// RemoveContainer removes a container that does not run, its log files, rotated
// ones too, and the link to them. Reason: RemoveContainerError. p serves
// messages only.
func (a *Actuator) RemoveContainer(ctx context.Context, p *v1.Pod, id string) error {
	s, err := a.ended(ctx, p, id)
	if s == nil || err != nil {
		return err
	}
	if err := errors.Join(removeLogs(s.GetLogPath()), a.unlink(s)); err != nil {
		return failed(reason.RemoveContainerError, err)
	}
	return a.remove(ctx, p, id)
}

// RemoveContainerKeepLogs removes a container only: those of a pod that
// restarts as a whole keep their logs.
func (a *Actuator) RemoveContainerKeepLogs(ctx context.Context, p *v1.Pod, id string) error {
	s, err := a.ended(ctx, p, id)
	if s == nil || err != nil {
		return err
	}
	return a.remove(ctx, p, id)
}

// ended is the status of a container to remove, nil if it is gone. The runtime
// would kill one that runs (CRI: RemoveContainer forces); such a request
// goes by an older record.
func (a *Actuator) ended(ctx context.Context, p *v1.Pod, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := a.deps.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, nil
	case err != nil:
		return nil, &Error{reason.RemoveContainerError, fmt.Sprintf("failed to get container status %q: %v", id, plain(err)), err}
	case resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING:
		return nil, failedf(reason.RemoveContainerError, "container %s of pod %q runs and is not removed", id, pod.String(p))
	}
	return resp.GetStatus(), nil
}

func (a *Actuator) remove(ctx context.Context, p *v1.Pod, id string) error {
	_, err := a.deps.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return &Error{reason.RemoveContainerError, fmt.Sprintf("remove container %s of pod %q: %v", id, pod.String(p), plain(err)), err}
	}
	return nil
}

// removeLogs removes a log and what was rotated out of it.
func removeLogs(log string) error {
	if log == "" {
		return nil
	}
	rotated, err := filepath.Glob(globQuote(log) + ".*")
	if err != nil {
		return fmt.Errorf("rotated logs of %s: %w", log, err)
	}
	var failed []error
	for _, path := range append(rotated, log) {
		failed = append(failed, file.Remove(path))
	}
	return errors.Join(failed...)
}

// globQuote takes a path's characters literally.
func globQuote(path string) string {
	var out []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			out = append(out, '\\')
		}
		out = append(out, path[i])
	}
	return string(out)
}

func (a *files) unlink(s *runtimeapi.ContainerStatus) error {
	info, err := pod.ParseContainer(s.GetLabels(), s.GetAnnotations())
	if errors.Is(err, pod.ErrNotOurs) {
		return nil
	}
	link := pod.LegacyLogLink(a.cfg.LegacyLogsDir, info.Pod.Name, info.Pod.Namespace, info.Name, s.GetId())
	if err := file.Remove(link); err != nil {
		return fmt.Errorf("failed to remove container %q log legacy symbolic link %q: %w", s.GetId(), link, err)
	}
	return nil
}
