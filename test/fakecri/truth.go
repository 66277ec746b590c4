// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"slices"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri/internal/shell"
)

// Exit ends the process of a running container with a code, as if it had
// chosen to. It does nothing to a container that does not run.
func (r *Runtime) Exit(containerID string, code int32) {
	r.die(containerID, shell.Exit{Code: code})
}

// OOMKill ends the process of a running container for lack of memory.
func (r *Runtime) OOMKill(containerID string) {
	r.die(containerID, shell.Exit{Code: 137, OOM: true})
}

// LoseExit ends the process of a running container in a way that the runtime
// cannot tell: code 255, reason Unknown, as containerd 2 may say of one that
// died while containerd was away.
func (r *Runtime) LoseExit(containerID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := byID(r.containers, containerID); ok && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.endAs(c, 255, "Unknown")
	}
}

func (r *Runtime) die(containerID string, exit shell.Exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := byID(r.containers, containerID); ok {
		r.exited(c, exit)
	}
}

// KillSandbox has a sandbox's own process die: it is not ready any more, while
// its containers live on and its address is kept until StopPodSandbox.
func (r *Runtime) KillSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, ok := byID(r.sandboxes, id)
	if !ok || sb.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return
	}
	sb.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	r.emit(sb.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, sb)
	r.notify()
}

// Forget removes a container, or a sandbox and its containers, without a word:
// no event, nothing stopped in an orderly way.
func (r *Runtime) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	off := r.broker.off
	r.broker.off = true
	defer func() { r.broker.off = off }()
	if c, ok := byID(r.containers, id); ok {
		r.killContainer(c)
		r.removeContainer(c)
	}
	if sb, ok := byID(r.sandboxes, id); ok {
		r.stopSandbox(sb)
		for _, c := range r.containersOf(sb.id) {
			r.removeContainer(c)
		}
		r.dropSandbox(sb)
	}
}

// Containers tells of all containers without any lie, oldest first.
func (r *Runtime) Containers() []*runtimeapi.ContainerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.ContainerStatus
	for _, c := range inOrder(r.containers, func(c *container) uint64 { return c.seq }) {
		out = append(out, proto.CloneOf(r.containerStatus(c, false)))
	}
	return out
}

// Sandboxes tells of all sandboxes without any lie, oldest first.
func (r *Runtime) Sandboxes() []*runtimeapi.PodSandboxStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandboxStatus
	for _, sb := range inOrder(r.sandboxes, func(sb *sandbox) uint64 { return sb.seq }) {
		out = append(out, proto.CloneOf(r.sandboxStatus(sb, false)))
	}
	return out
}

// Container is the truth about the youngest container of that name in a pod of
// that name; nil if there is none.
func (r *Runtime) Container(pod, name string) *runtimeapi.ContainerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found *container
	for _, c := range r.containers {
		if c.sandbox.config.GetMetadata().GetName() == pod && c.config.GetMetadata().GetName() == name &&
			(found == nil || c.seq > found.seq) {
			found = c
		}
	}
	if found == nil {
		return nil
	}
	return proto.CloneOf(r.containerStatus(found, false))
}

// Sandbox is the truth about the youngest sandbox of a pod; nil if it has none.
func (r *Runtime) Sandbox(pod string) *runtimeapi.PodSandboxStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found *sandbox
	for _, sb := range r.sandboxes {
		if sb.config.GetMetadata().GetName() == pod && (found == nil || sb.seq > found.seq) {
			found = sb
		}
	}
	if found == nil {
		return nil
	}
	return proto.CloneOf(r.sandboxStatus(found, false))
}

// ContainerConfig is what a container was created with; nil if it is unknown.
func (r *Runtime) ContainerConfig(id string) *runtimeapi.ContainerConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := byID(r.containers, id); ok {
		return proto.CloneOf(c.config)
	}
	return nil
}

// SandboxConfig is what a sandbox was run with; nil if it is unknown.
func (r *Runtime) SandboxConfig(id string) *runtimeapi.PodSandboxConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb, ok := byID(r.sandboxes, id); ok {
		return proto.CloneOf(sb.config)
	}
	return nil
}

// Signals are those the process of a container was sent, in order: "TERM", "KILL".
func (r *Runtime) Signals(containerID string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := byID(r.containers, containerID); ok {
		return slices.Clone(c.sent)
	}
	return nil
}

func inOrder[T any](all map[string]T, seq func(T) uint64) []T {
	out := make([]T, 0, len(all))
	for _, v := range all {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b T) int { return int(seq(a)) - int(seq(b)) })
	return out
}
