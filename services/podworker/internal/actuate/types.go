// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/criconfig"
)

// SandboxSpec is one sandbox of a pod. The same value that made the sandbox is
// to be given with each of its containers.
type SandboxSpec struct {
	Pod *v1.Pod
	// Attempt counts the sandboxes of the pod, from 0.
	Attempt uint32
	// CgroupParent is the pod's cgroup, as resource answered it.
	CgroupParent string
	// RuntimeHandler of the pod's RuntimeClass; empty for the default.
	RuntimeHandler string
	// ExtraGroups are supplemental groups the pod's volumes ask for.
	ExtraGroups []int64
}

// ImageSpec is an image that has to be present.
type ImageSpec struct {
	Pod *v1.Pod
	// Container the image is for; its events are about it. Empty for an image
	// volume.
	Container string
	// Image and Policy as in the container's (or the volume's) specification.
	Image          string
	Policy         v1.PullPolicy
	RuntimeHandler string
	// CgroupParent is the pod's cgroup, as resource answered it.
	CgroupParent string
}

// Volume is what a container may mount under one name of pod.spec.volumes.
type Volume = criconfig.Volume

// Allocation is what device plugins, CDI and the resource managers give to one
// container.
type Allocation struct {
	Envs        map[string]string
	Annotations map[string]string
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	CDIDevices  []string
	// CPUSet and MemorySet are cgroup lists such as "0-3,7"; empty for no pinning.
	CPUSet, MemorySet string
	// ExclusiveCPUs takes the CPU quota away.
	ExclusiveCPUs bool
	// OfPlugins: there are devices of plugins among them, which are prepared before each start.
	OfPlugins bool
}

// ContainerSpec is one instance of a container.
type ContainerSpec struct {
	Sandbox   SandboxSpec
	SandboxID string
	// Container is its name in the pod.
	Container string
	// RestartCount of this instance, from 0.
	RestartCount int
	// ImageRef as EnsureImage returned it.
	ImageRef string
	// PodIPs of the sandbox, primary first; empty for a pod on the host's network.
	PodIPs []string
	// Volumes by name in pod.spec.volumes.
	Volumes    map[string]Volume
	Allocation Allocation
	// Target names the container whose processes an ephemeral one sees, or is empty;
	// TargetID is its instance.
	Target, TargetID string
}

// KillSpec is a container to be stopped.
type KillSpec struct {
	// Pod as far as it is known. For an orphan name, namespace and UID suffice;
	// its hook and ports are then read from the container's annotations.
	Pod *v1.Pod
	// Container is its name.
	Container   string
	ContainerID string
	// Annotations of the container, as the runtime has them.
	Annotations map[string]string
	// PodIPs of the sandbox, primary first, for an httpGet hook.
	PodIPs []string
	// Grace is the time left for hook and stop together. The runtime never gets
	// less than two seconds.
	Grace time.Duration
	// RunPreStop says whether the hook is due. It is skipped without grace.
	RunPreStop bool
	// Told: a PreStop before this one has emitted Killing.
	Told bool
	// Message of the event Killing; empty for "Stopping container NAME".
	Message string
}

// Devices of plugins.
type Devices interface {
	// PreStart has plugins prepare the devices of a container that is about to start.
	PreStart(ctx context.Context, p types.UID, container string) error
}

// Lookups are the facts of other services that containers are made from. What
// they return is shared and must not be written to.
type Lookups interface {
	// ConfigMap and Secret report an object that does not exist by an error for
	// which apierrors.IsNotFound holds; any other error means "cannot tell now".
	ConfigMap(namespace, name string) (*v1.ConfigMap, error)
	Secret(namespace, name string) (*v1.Secret, error)
	// DockerConfig is the node's own docker configuration, with credentials for every pod;
	// empty for none.
	DockerConfig() ([]byte, error)
	// Services of a namespace and of "default"; an error until they are known.
	Services(namespace string) ([]*v1.Service, error)
	// Node is what is known of this node now.
	Node() NodeFacts
}

// NodeFacts are the node's part of a container.
type NodeFacts struct {
	Name string
	// IPs of the node, primary first.
	IPs []string
	// Allocatable replaces limits a container leaves open (resourceFieldRef).
	Allocatable v1.ResourceList
	// MemoryCapacity and SwapCapacity in bytes.
	MemoryCapacity, SwapCapacity int64
	// CgroupVersion is 1 or 2.
	CgroupVersion int
	// Handlers are the features of the runtime's handlers, by name ("" is the
	// default); nil when the runtime does not tell.
	Handlers map[string]HandlerFeatures
}

// HandlerFeatures is what a runtime handler can do.
type HandlerFeatures struct {
	RecursiveReadOnly, UserNamespaces bool
}

// Configuration is the effective configuration; it may change while running.
type Configuration interface {
	// Config is nil until the configuration is known.
	Config() *kubeletconfig.Config
}

// Recorder takes Kubernetes Events; feed.Events is one.
type Recorder interface {
	Emit(ctx context.Context, event *eventv1.Event) error
}

// Subpaths prepares the part of a volume that volumeMounts[].subPath names, so
// that no process of the pod can swap it for something outside the volume. It
// needs the right to mount, which this process has not: volume does it.
type Subpaths interface {
	// Subpath returns the path to hand to the runtime. subPath is expanded,
	// relative, and holds no "..". index is the place in volumeMounts.
	Subpath(ctx context.Context, req SubpathRequest) (hostPath string, err error)
}

// SubpathRequest names one volumeMounts[].subPath.
type SubpathRequest struct {
	UID               types.UID
	Container, Volume string
	Index             int
	// VolumePath is the root of the volume on the host.
	VolumePath, SubPath string
	ReadOnly            bool
}
