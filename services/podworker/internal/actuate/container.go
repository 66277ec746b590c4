// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
)

// StartContainer makes a container, starts it, links its log and runs its
// postStart hook. The identity is returned as soon as there is one, also with an
// error. Reasons: CreateContainerConfigError, CreateContainerError,
// RunContainerError, PostStartHookError — with the last the container has been
// stopped again.
func (a *Actuator) StartContainer(ctx context.Context, spec ContainerSpec) (string, error) {
	c, kind := pod.FindContainer(spec.Sandbox.Pod, spec.Container)
	if c == nil {
		return "", failedf(reason.CreateContainerConfigError, "pod %q has no container %q", pod.String(spec.Sandbox.Pod), spec.Container)
	}
	label := containerType(kind)
	a.metrics.containers.WithLabelValues(label).Inc()
	id, err := a.startContainer(ctx, spec, c)
	if err == nil {
		a.metrics.userPods.up(spec.Sandbox.Pod, spec.Container)
		return id, nil
	}
	if ctx.Err() == nil {
		a.metrics.userPods.failed(spec.Sandbox.Pod)
		a.metrics.containerErrors.WithLabelValues(label, string(err.Reason)).Inc()
	}
	return id, err
}

func (a *Actuator) startContainer(ctx context.Context, spec ContainerSpec, c *v1.Container) (string, *Error) {
	p := spec.Sandbox.Pod
	warn := func(err *Error) *Error {
		a.event(ctx, p, c.Name, v1.EventTypeWarning, "Failed", "Error: "+err.Message)
		return err
	}
	if spec.Target != "" && spec.TargetID == "" {
		return "", warn(failedf(reason.CreateContainerConfigError, "unable to find target container %s", spec.Target))
	}
	id, request, made := a.createContainer(ctx, spec, c)
	if made != nil {
		return "", warn(made)
	}
	a.event(ctx, p, c.Name, v1.EventTypeNormal, "Created", "Container created")
	err := ctx.Err()
	if err == nil {
		err = fault.Hit(ctx, "podworker.start")
	}
	if err != nil {
		return id, warn(failed(reason.RunContainerError, err))
	}
	if _, err := a.deps.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return id, warn(failed(reason.RunContainerError, err))
	}
	a.event(ctx, p, c.Name, v1.EventTypeNormal, "Started", "Container started")
	a.link(p, c.Name, id, filepath.Join(request.GetSandboxConfig().GetLogDirectory(), request.GetConfig().GetLogPath()))
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		if err := a.postStart(ctx, spec, c, id); err != nil {
			return id, err
		}
	}
	return id, nil
}

// createContainer makes a container. An attempt that fails leaves no termination log:
// it may be repeated for days.
func (a *Actuator) createContainer(ctx context.Context, spec ContainerSpec, c *v1.Container) (string, *runtimeapi.CreateContainerRequest, *Error) {
	log := ""
	if c.TerminationMessagePath != "" {
		log = a.layout.TerminationMessage(spec.Sandbox.Pod.UID, c.Name, fmt.Sprintf("%08x", rand.Uint32()))
	}
	request, err := a.createRequest(ctx, spec, c, log)
	if err == nil && spec.Allocation.OfPlugins {
		err = a.deps.Devices.PreStart(ctx, spec.Sandbox.Pod.UID, c.Name)
	}
	if err == nil && log != "" {
		err = makeTerminationLog(log)
	}
	if err != nil {
		return "", nil, failed(reason.CreateContainerConfigError, err)
	}
	err = fault.Hit(ctx, "podworker.create")
	var resp *runtimeapi.CreateContainerResponse
	if err == nil {
		resp, err = a.deps.Runtime.CreateContainer(ctx, request)
		a.countImageVolumes(request.GetConfig(), err)
	}
	if err != nil {
		_ = os.Remove(log)
		return "", nil, failed(reason.CreateContainerError, err)
	}
	return resp.GetContainerId(), request, nil
}

// countImageVolumes counts what the runtime mounts when it makes a container.
func (a *Actuator) countImageVolumes(config *runtimeapi.ContainerConfig, err error) {
	for _, m := range config.GetMounts() {
		switch {
		case m.GetImage().GetImage() == "":
		case err == nil:
			a.metrics.imageVolumesGood.Inc()
		case strings.Contains(err.Error(), "ImageVolumeMountFailed"):
			a.metrics.imageVolumesBad.Inc()
		}
	}
}

// postStart runs the hook; a container whose hook fails is stopped again. What
// the hook answered is not told in the event: it may hold secrets. A hook that was
// cancelled has not failed: its container is stopped by the caller, or goes on.
func (a *Actuator) postStart(ctx context.Context, spec ContainerSpec, c *v1.Container, id string) *Error {
	p := spec.Sandbox.Pod
	err := a.runHook(ctx, hook{pod: p, container: c, id: id, ips: spec.PodIPs, handler: c.Lifecycle.PostStart})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return failed(reason.PostStartHookError, err)
	}
	a.log.WarnContext(ctx, "postStart hook failed", "pod", pod.FullName(p), "container", c.Name, "error", err.Error())
	a.event(ctx, p, c.Name, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	kill := KillSpec{
		Pod: p, Container: c.Name, ContainerID: id, PodIPs: spec.PodIPs, RunPreStop: true, Message: "FailedPostStartHook",
		Grace: pod.Seconds(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)),
	}
	if stopErr := a.StopContainer(ctx, kill); stopErr != nil {
		a.log.WarnContext(ctx, "container with failed postStart hook not stopped", "pod", pod.FullName(p), "container", c.Name, "error", stopErr.Error())
	}
	return failed(reason.PostStartHookError, err)
}

// link makes the name log collectors look for. Nothing depends on it.
func (a *files) link(p *v1.Pod, container, id, log string) {
	link := pod.LegacyLogLink(a.cfg.LegacyLogsDir, p.Name, p.Namespace, container, id)
	if !exists(log) {
		return
	}
	err := os.Symlink(log, link)
	if os.IsNotExist(err) {
		if err = os.MkdirAll(a.cfg.LegacyLogsDir, logDirMode); err == nil {
			err = os.Symlink(log, link)
		}
	}
	if err != nil && !os.IsExist(err) {
		a.log.Warn("no legacy link to the log", "link", link, "error", err.Error())
	}
}

// makeTerminationLog makes the host file behind terminationMessagePath, new for each
// instance and writable by any user the container may run as.
func makeTerminationLog(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("termination log: %w", err)
	}
	err = errors.Join(f.Chmod(0o666), f.Close()) // whatever the umask
	if err != nil {
		return fmt.Errorf("termination log: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}
