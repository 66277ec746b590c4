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
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/criconfig"
)

// RunSandbox makes and starts a pod's sandbox with its network, after its
// directories. Reasons: ConfigPodSandboxError, CreatePodSandboxError.
func (a *Actuator) RunSandbox(ctx context.Context, spec SandboxSpec) (string, error) {
	p := spec.Pod
	userPod := !value(p.Spec.HostUsers, true)
	a.metrics.pods.Inc()
	if userPod {
		a.metrics.userPods.Inc()
	}
	id, err := a.runSandbox(ctx, spec)
	if err != nil {
		a.metrics.podErrors.Inc()
		if userPod {
			a.metrics.userPodErrors.Inc()
		}
		cause := err.Err
		a.event(ctx, p, "", v1.EventTypeWarning, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", cause))
		return "", err
	}
	return id, nil
}

func (a *Actuator) runSandbox(ctx context.Context, spec SandboxSpec) (string, *Error) {
	p := spec.Pod
	if err := a.makePodDirs(p); err != nil {
		a.event(ctx, p, "", v1.EventTypeWarning, "Failed", fmt.Sprintf("error making pod data directories: %v", err))
		return "", &Error{ConfigPodSandboxError, fmt.Sprintf("error making pod data directories: %v", err), err}
	}
	config, err := a.sandboxConfig(ctx, spec, true)
	if err != nil {
		return "", &Error{ConfigPodSandboxError, fmt.Sprintf("Failed to generate sandbox config for pod %q: %v", pod.String(p), err), err}
	}
	if err := fault.Hit(ctx, "podworker.sandbox"); err != nil {
		return "", failed(CreatePodSandboxError, err)
	}
	started := a.deps.Clock.Now()
	resp, err := a.deps.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: spec.RuntimeHandler})
	a.metrics.sandboxSeconds.WithLabelValues(spec.RuntimeHandler).Observe(a.deps.Clock.Since(started).Seconds())
	if err != nil {
		a.metrics.sandboxErrors.WithLabelValues(spec.RuntimeHandler).Inc()
		return "", &Error{CreatePodSandboxError, fmt.Sprintf("Failed to create sandbox for pod %q: %v", pod.String(p), err), err}
	}
	return resp.GetPodSandboxId(), nil
}

// sandboxConfig is the configuration a sandbox is made with; its containers are
// made with the same. tell emits events about the pod's DNS.
func (a *Actuator) sandboxConfig(ctx context.Context, spec SandboxSpec, tell bool) (*runtimeapi.PodSandboxConfig, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	security, err := a.securityOptions(cfg, spec)
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
func (a *Actuator) StopSandbox(ctx context.Context, p *v1.Pod, id string) error {
	_, err := a.deps.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return &Error{KillPodSandboxError, fmt.Sprintf("stop sandbox %s of pod %q: %v", id, pod.String(p), plain(err)), err}
	}
	return nil
}

// RemoveSandbox forgets a stopped sandbox and its containers. Reason:
// KillPodSandboxError.
func (a *Actuator) RemoveSandbox(ctx context.Context, p *v1.Pod, id string) error {
	_, err := a.deps.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return &Error{KillPodSandboxError, fmt.Sprintf("remove sandbox %s of pod %q: %v", id, pod.String(p), plain(err)), err}
	}
	return nil
}
