// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/criconfig"
)

// RunSandbox makes and starts a pod's sandbox with its network, after its
// directories. Reasons: ConfigPodSandboxError, CreatePodSandboxError.
func (a *sandboxes) RunSandbox(ctx context.Context, spec SandboxSpec) (string, error) {
	p := spec.Pod
	a.metrics.pods.Inc()
	a.metrics.userPods.begin(p)
	id, err := a.runSandbox(ctx, spec)
	switch {
	case err == nil:
		return id, nil
	case ctx.Err() != nil:
		return "", err
	}
	a.metrics.podErrors.Inc()
	a.metrics.userPods.failed(p)
	a.event(ctx, p, "", v1.EventTypeWarning, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err.Err))
	return "", err
}

func (a *sandboxes) runSandbox(ctx context.Context, spec SandboxSpec) (string, *Error) {
	p := spec.Pod
	if err := a.makePodDirs(p); err != nil {
		a.event(ctx, p, "", v1.EventTypeWarning, "Failed", fmt.Sprintf("error making pod data directories: %v", err))
		return "", &Error{reason.ConfigPodSandboxError, fmt.Sprintf("error making pod data directories: %v", err), err}
	}
	config, err := a.sandboxConfig(ctx, spec, true)
	if err != nil {
		return "", &Error{reason.ConfigPodSandboxError, fmt.Sprintf("Failed to generate sandbox config for pod %q: %v", pod.String(p), err), err}
	}
	if err := fault.Hit(ctx, "podworker.sandbox"); err != nil {
		return "", failed(reason.CreatePodSandboxError, err)
	}
	started := a.deps.Clock.Now()
	resp, err := a.deps.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: spec.RuntimeHandler})
	a.metrics.sandboxSeconds.WithLabelValues(spec.RuntimeHandler).Observe(a.deps.Clock.Since(started).Seconds())
	if err != nil && ctx.Err() == nil {
		a.metrics.sandboxErrors.WithLabelValues(spec.RuntimeHandler).Inc()
	}
	if err != nil {
		return "", &Error{reason.CreatePodSandboxError, fmt.Sprintf("Failed to create sandbox for pod %q: %v", pod.String(p), err), err}
	}
	return resp.GetPodSandboxId(), nil
}

// sandboxConfig is the configuration a sandbox is made with; its containers are
// made with the same. tell emits events about the pod's DNS.
func (a *requests) sandboxConfig(ctx context.Context, spec SandboxSpec, tell bool) (*runtimeapi.PodSandboxConfig, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	security, err := a.securityOptions(ctx, cfg, spec)
	if err != nil {
		return nil, err
	}
	dns, warnings, err := a.dns(cfg, spec.Pod)
	if err != nil {
		return nil, err
	}
	if tell {
		a.tellDNS(ctx, spec.Pod, warnings)
	}
	p := spec.Pod
	return criconfig.Sandbox(criconfig.SandboxInput{
		Pod: p, Attempt: spec.Attempt, CgroupParent: spec.CgroupParent,
		LogDir:        pod.PodLogDir(a.cfg.PodLogsDir, p.Namespace, p.Name, p.UID),
		ClusterDomain: cfg.Kubelet.ClusterDomain, DNS: dns,
		Security: security, Resources: a.resourceOptions(cfg),
	})
}

// StopSandbox stops what runs in a sandbox and gives its network back. Reason:
// KillPodSandboxError. p serves messages only.
func (a *sandboxes) StopSandbox(ctx context.Context, p *v1.Pod, id string) error {
	_, err := a.deps.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return &Error{reason.KillPodSandboxError, fmt.Sprintf("stop sandbox %s of pod %q: %v", id, pod.String(p), plain(err)), err}
	}
	return nil
}

// RemoveSandbox forgets a stopped sandbox and its containers. Reason:
// KillPodSandboxError.
func (a *sandboxes) RemoveSandbox(ctx context.Context, p *v1.Pod, id string) error {
	_, err := a.deps.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return &Error{reason.KillPodSandboxError, fmt.Sprintf("remove sandbox %s of pod %q: %v", id, pod.String(p), plain(err)), err}
	}
	return nil
}
