// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// instance is one container as the runtime reports it.
type instance struct {
	*runtimeapi.ContainerStatus
	restartCount int32
}

func (i instance) running() bool {
	return i.State == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func (i instance) exited() bool {
	return i.State == runtimeapi.ContainerState_CONTAINER_EXITED
}

// record is the observed record, sorted for rendering.
type record struct {
	// sandboxes, newest first.
	sandboxes []*runtimeapi.PodSandboxStatus
	// instances by container name, newest first.
	instances map[string][]instance
}

func newRecord(o Observed) record {
	r := record{instances: map[string][]instance{}}
	r.sandboxes = slices.Clone(o.Sandboxes)
	slices.SortStableFunc(r.sandboxes, pod.NewerSandbox)
	for _, c := range o.Containers {
		// Annotations that cannot be read leave their fields zero.
		info, _ := pod.ParseContainer(c.GetLabels(), c.GetAnnotations())
		name := cmp.Or(info.Name, c.GetMetadata().GetName())
		r.instances[name] = append(r.instances[name], instance{
			ContainerStatus: c,
			restartCount:    max(int32(info.RestartCount), int32(c.GetMetadata().GetAttempt())),
		})
	}
	for _, list := range r.instances {
		slices.SortStableFunc(list, func(a, b instance) int { return pod.NewerContainer(a.ContainerStatus, b.ContainerStatus) })
	}
	return r
}

// newest is the newest instance of a container, nil when there is none.
func (r record) newest(name string) *instance {
	if list := r.instances[name]; len(list) > 0 {
		return &list[0]
	}
	return nil
}

// interrupted takes a newest instance that has exited without having run, and that
// podworker has not counted, for one that was only created: the runtime gives up a
// start when podworker dies, which then makes another in its place. One that could
// not be started, podworker counts.
func (r record) interrupted(facts map[string]ContainerFacts) {
	for name, list := range r.instances {
		i, f := &list[0], facts[name]
		if _, known := facts[name]; !known || !i.exited() || i.GetStartedAt() != 0 || !f.Unstarted && i.restartCount <= f.RestartCount {
			continue
		}
		i.ContainerStatus = proto.CloneOf(i.ContainerStatus)
		i.State = runtimeapi.ContainerState_CONTAINER_CREATED
	}
}

// activeRegular reports whether a regular container exists in the current sandbox: its
// init containers are done then. Containers are younger than the sandbox they are in.
func (r record) activeRegular(p *v1.Pod) bool {
	if len(r.sandboxes) == 0 {
		return false
	}
	for i := range p.Spec.Containers {
		for _, inst := range r.instances[p.Spec.Containers[i].Name] {
			if inst.GetCreatedAt() >= r.sandboxes[0].GetCreatedAt() {
				return true
			}
		}
	}
	return false
}

// readySandbox is the sandbox the pod can use, nil when a new one is needed: exactly one
// is ready, it is the newest, has the wanted network namespace and, unless that is the
// node's, an address.
func (r record) readySandbox(p *v1.Pod) *runtimeapi.PodSandboxStatus {
	ready := 0
	for _, s := range r.sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	if ready != 1 || r.sandboxes[0].GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil
	}
	s := r.sandboxes[0]
	want := runtimeapi.NamespaceMode_POD
	if p.Spec.HostNetwork {
		want = runtimeapi.NamespaceMode_NODE
	}
	if s.GetLinux().GetNamespaces().GetOptions().GetNetwork() != want {
		return nil
	}
	if !p.Spec.HostNetwork && s.GetNetwork() != nil && s.GetNetwork().GetIp() == "" {
		return nil
	}
	return s
}

// ips are the addresses of the newest sandbox while it is ready; anyReady is true when
// some sandbox is.
func (r record) ips() (ips []string, anyReady bool) {
	for i, s := range r.sandboxes {
		if s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		anyReady = true
		if i == 0 && s.GetNetwork().GetIp() != "" {
			ips = append(ips, s.GetNetwork().GetIp())
			for _, more := range s.GetNetwork().GetAdditionalIps() {
				ips = append(ips, more.GetIp())
			}
		}
	}
	return ips, anyReady
}

func unixNano(n int64) time.Time { return time.Unix(0, n) }
