// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime tells of pods that have something twice now, and of containers that
// are not the first of their name.
func Runtime(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) []Finding {
	twice, found := map[string]int{}, []Finding(nil)
	for _, s := range sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			twice["sandbox of "+s.GetMetadata().GetName()+" "+s.GetMetadata().GetUid()]++
		}
	}
	for _, c := range containers {
		what := "container " + c.GetMetadata().GetName() + " of " + c.GetLabels()["io.kubernetes.pod.name"] + " " + c.GetLabels()["io.kubernetes.pod.uid"]
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			twice[what]++
		}
		if n := c.GetMetadata().GetAttempt(); n > 0 {
			found = append(found, Finding{Restart, fmt.Sprintf("%s is attempt %d", what, n)})
		}
	}
	for _, what := range slices.Sorted(maps.Keys(twice)) {
		if twice[what] > 1 {
			found = append(found, Finding{Duplicate, fmt.Sprintf("%d times the %s", twice[what], what)})
		}
	}
	return found
}

// leftFor is how long a dead sandbox may stay after its pod: a minute, as with a kubelet,
// and what the removal of many takes.
const leftFor = 3 * time.Minute

// Leftovers tells of sandboxes of pods that are gone, each since a time by name, for too long.
func Leftovers(sandboxes []*runtimeapi.PodSandbox, gone map[string]time.Time, now time.Time) (found []Finding) {
	for _, s := range sandboxes {
		name := s.GetMetadata().GetName()
		if at, ok := gone[name]; ok && now.Sub(at) > leftFor {
			found = append(found, Finding{Lost, fmt.Sprintf("the sandbox of pod %s is there %s after the pod went", name, now.Sub(at).Round(time.Second))})
		}
	}
	return found
}

// Census hears of every start that the runtime tells and remembers them, so that
// what was there twice and is gone again is found as well.
type Census struct {
	ids map[string]map[string]bool // by what was started
}

// Saw takes a runtime's event in.
func (c *Census) Saw(e *runtimeapi.ContainerEventResponse) []Finding {
	if e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT {
		return nil
	}
	of, id := e.GetPodSandboxStatus().GetMetadata(), e.GetContainerId()
	what := ""
	if id == e.GetPodSandboxStatus().GetId() {
		what = "sandbox"
	}
	for _, s := range e.GetContainersStatuses() {
		if s.GetId() == id && what == "" {
			what = "container " + s.GetMetadata().GetName()
		}
	}
	if what == "" {
		return nil // gone before the runtime could say more
	}
	what = fmt.Sprintf("%s of %s %s", what, of.GetName(), of.GetUid())
	if c.ids == nil {
		c.ids = map[string]map[string]bool{}
	}
	if c.ids[what] == nil {
		c.ids[what] = map[string]bool{}
	}
	if c.ids[what][id] = true; len(c.ids[what]) == 1 {
		return nil
	}
	return []Finding{{Duplicate, fmt.Sprintf("the %s was started %d times", what, len(c.ids[what]))}}
}
