// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/rpc"
)

// Pod is what has to be known of a pod to read its logs.
type Pod struct {
	Spec *v1.Pod
	// Statuses of all its containers the runtime has.
	Statuses []*runtimeapi.ContainerStatus
	// Waiting holds for each container that is to be started (again) why it is
	// not: the reason its status shows.
	Waiting map[string]string
	// Refused pods never have a container.
	Refused bool
}

// containerOf fills in the only container of a pod and refuses unknown ones.
func containerOf(p *v1.Pod, name string) (string, error) {
	if name == "" {
		if len(p.Spec.Containers) == 1 && len(p.Spec.InitContainers) == 0 && len(p.Spec.EphemeralContainers) == 0 {
			return p.Spec.Containers[0].Name, nil
		}
		var names []string
		for _, c := range pod.Containers(p) {
			names = append(names, c.Name)
		}
		return "", rpc.Invalid.Errorf("a container name must be specified for pod %s, choose one of: [%s]", p.Name, strings.Join(names, " "))
	}
	if c, _ := pod.FindContainer(p, name); c == nil {
		return "", rpc.NotFound.Errorf("container %q not found in pod %q", name, p.Name)
	}
	return name, nil
}

// choose finds the instance whose log is meant: the running one, or else the
// last that ran; with previous the one that ended before that. A container that
// waits for its restart counts as the next instance already.
func choose(p Pod, container string, previous bool) (*runtimeapi.ContainerStatus, error) {
	waiting, waits := p.Waiting[container]
	var ran []*runtimeapi.ContainerStatus // newest first, what never started left out
	for _, s := range p.Statuses {
		if s.GetMetadata().GetName() != container {
			continue
		}
		switch s.GetState() {
		case runtimeapi.ContainerState_CONTAINER_CREATED:
			waits = true
		default:
			ran = append(ran, s)
		}
	}
	slices.SortStableFunc(ran, pod.NewerContainer)
	running := len(ran) > 0 && ran[0].GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	if previous {
		if running || !waits {
			ran = ran[min(1, len(ran)):]
		}
		if len(ran) == 0 {
			return nil, rpc.Invalid.Errorf("previous terminated container %q in pod %q not found", container, p.Spec.Name)
		}
		return ran[0], nil
	}
	switch {
	case len(ran) > 0:
		return ran[0], nil
	case p.Refused:
		return nil, rpc.Invalid.Errorf("container %q in pod %q is not available", container, p.Spec.Name)
	}
	why := fmt.Sprintf("container %q in pod %q is waiting to start", container, p.Spec.Name)
	if waiting == "" && len(p.Spec.Spec.InitContainers) > 0 {
		waiting = reason.PodInitializing // and it will stay so if one of them failed
	}
	switch waiting {
	case "":
		return nil, rpc.Invalid.Errorf("%s - no logs yet", why)
	case reason.ErrImagePull:
		return nil, rpc.Invalid.Errorf("%s: image can't be pulled", why)
	case reason.ImagePullBackOff:
		return nil, rpc.Invalid.Errorf("%s: trying and failing to pull image", why)
	}
	return nil, rpc.Invalid.Errorf("%s: %s", why, waiting)
}
