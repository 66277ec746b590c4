// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// userStart is how far the start of a pod with a user namespace (KEP-127) has come.
type userStart int

const (
	// early: an image failed before the sandbox was begun; both are begun together.
	early userStart = iota + 1
	// starting: its sandbox was begun.
	starting
	// settled: it has failed, or its containers have started; what comes is no start.
	settled
)

// userPods counts starts of pods with user namespaces, and those that fail, each once: as
// the kubelet does, whatever fails in the pass that makes the sandbox, be it the sandbox,
// an image or a container. Ids that cannot be mapped show in the containers only.
type userPods struct {
	started, failures prometheus.Counter

	mu   sync.Mutex
	pods map[types.UID]userStart
}

func userPod(p *v1.Pod) bool { return !ptr.Deref(p.Spec.HostUsers, true) }

// begin notes that a sandbox is begun.
func (u *userPods) begin(p *v1.Pod) {
	if !userPod(p) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.started.Inc()
	if u.pods[p.UID] == early {
		u.failures.Inc()
		u.pods[p.UID] = settled
		return
	}
	u.pods[p.UID] = starting
}

// failed notes that something of the start failed.
func (u *userPods) failed(p *v1.Pod) {
	if !userPod(p) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch u.pods[p.UID] {
	case 0:
		u.pods[p.UID] = early
	case starting:
		u.failures.Inc()
		u.pods[p.UID] = settled
	}
}

// up notes that a container has started. The pass ends with the first init container,
// or with the last regular one.
func (u *userPods) up(p *v1.Pod, container string) {
	last := len(p.Spec.Containers) - 1
	ends := len(p.Spec.InitContainers) > 0 || last >= 0 && p.Spec.Containers[last].Name == container
	if !userPod(p) || !ends {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pods[p.UID] == starting {
		u.pods[p.UID] = settled
	}
}

// forget drops a pod that is gone.
func (u *userPods) forget(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.pods, uid)
}
