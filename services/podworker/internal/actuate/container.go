package actuate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
)

// StartContainer makes a container, starts it, links its log and runs its
// postStart hook. The identity is returned as soon as there is one, also with an
// error. Reasons: CreateContainerConfigError, CreateContainerError,
// RunContainerError, PostStartHookError — with the last the container has been
// stopped again.
func (a *Actuator) StartContainer(ctx context.Context, spec ContainerSpec) (string, error) {
	c, kind := pod.FindContainer(spec.Sandbox.Pod, spec.Container)
	if c == nil {
		return "", failedf(CreateContainerConfigError, "pod %q has no container %q", pod.String(spec.Sandbox.Pod), spec.Container)
	}
	label := containerType(kind)
	a.metrics.containers.WithLabelValues(label).Inc()
	id, err := a.startContainer(ctx, spec, c)
	if err != nil {
		a.metrics.containerErrors.WithLabelValues(label, string(err.Reason)).Inc()
		return id, err
	}
	return id, nil
}

func (a *Actuator) startContainer(ctx context.Context, spec ContainerSpec, c *v1.Container) (string, *Error) {
	p := spec.Sandbox.Pod
	warn := func(err *Error) *Error {
		a.event(ctx, p, c.Name, v1.EventTypeWarning, "Failed", "Error: "+err.Message)
		return err
	}
	if spec.Target != "" && spec.TargetID == "" {
		return "", warn(failedf(CreateContainerConfigError, "unable to find target container %s", spec.Target))
	}
	request, err := a.createRequest(ctx, spec, c)
	if err != nil {
		return "", warn(failed(CreateContainerConfigError, err))
	}
	if err := fault.Hit(ctx, "podworker.create"); err != nil {
		return "", warn(failed(CreateContainerError, err))
	}
	resp, err := a.deps.Runtime.CreateContainer(ctx, request)
	a.countImageVolumes(request.GetConfig(), err)
	if err != nil {
		return "", warn(failed(CreateContainerError, err))
	}
	id := resp.GetContainerId()
	a.event(ctx, p, c.Name, v1.EventTypeNormal, "Created", "Container created")
	if err := fault.Hit(ctx, "podworker.start"); err != nil {
		return id, warn(failed(RunContainerError, err))
	}
	if _, err := a.deps.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return id, warn(failed(RunContainerError, err))
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
// the hook answered is not told in the event: it may hold secrets.
func (a *Actuator) postStart(ctx context.Context, spec ContainerSpec, c *v1.Container, id string) *Error {
	p := spec.Sandbox.Pod
	err := a.runHook(ctx, hook{pod: p, container: c, id: id, ips: spec.PodIPs, handler: c.Lifecycle.PostStart})
	if err == nil {
		return nil
	}
	a.log.WarnContext(ctx, "postStart hook failed", "pod", pod.FullName(p), "container", c.Name, "error", err.Error())
	a.event(ctx, p, c.Name, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	kill := KillSpec{
		Pod: p, Container: c.Name, ContainerID: id, PodIPs: spec.PodIPs, RunPreStop: true, Message: "FailedPostStartHook",
		Grace: seconds(value(p.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)),
	}
	if stopErr := a.StopContainer(ctx, kill); stopErr != nil {
		a.log.WarnContext(ctx, "container with failed postStart hook not stopped", "pod", pod.FullName(p), "container", c.Name, "error", stopErr.Error())
	}
	return failed(PostStartHookError, err)
}

// link makes the name log collectors look for. Nothing depends on it.
func (a *Actuator) link(p *v1.Pod, container, id, log string) {
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

// makeTerminationLog makes the host file behind terminationMessagePath, new for
// each instance and writable by whoever the container runs as.
func (a *Actuator) makeTerminationLog(p *v1.Pod, container string) (string, error) {
	path := a.layout.TerminationMessage(p.UID, container, fmt.Sprintf("%08x", rand.Uint32()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return "", fmt.Errorf("termination log: %w", err)
	}
	if err := f.Chmod(0o666); err != nil { // whatever the umask
		return "", fmt.Errorf("termination log: %w", err)
	}
	return path, f.Close()
}
