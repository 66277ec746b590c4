// SPDX-License-Identifier: Apache-2.0

package env

import (
	v1 "k8s.io/api/core/v1"
)

// Objects looks up the API objects an environment may refer to. A missing object is
// reported by an error for which k8s.io/apimachinery/pkg/api/errors.IsNotFound holds;
// any other error means "cannot tell now" and always fails the build.
type Objects interface {
	ConfigMap(namespace, name string) (*v1.ConfigMap, error)
	Secret(namespace, name string) (*v1.Secret, error)
}

// Files looks up keys of env files that live in a volume of the pod (fileKeyRef).
type Files interface {
	// EnvFile returns the content of the file at path inside the named volume. A file that does
	// not exist is reported by an error for which errors.Is(err, fs.ErrNotExist) holds.
	EnvFile(volume, path string) ([]byte, error)
}

// Input is everything the environment of a container depends on.
type Input struct {
	Pod       *v1.Pod
	Container *v1.Container
	// PodIPs of the sandbox, primary first; for a pod on the host's network those of the node.
	PodIPs []string
	// HostIPs of the node, primary first.
	HostIPs []string
	// NodeAllocatable replaces limits a container does not set (resourceFieldRef).
	NodeAllocatable v1.ResourceList
	// Services that exist: at least those of the pod's namespace and of namespace
	// "default". Others are ignored.
	Services []*v1.Service
	// Objects is needed when the container refers to a ConfigMap or a Secret.
	Objects Objects
	// Files is needed when the container uses fileKeyRef.
	Files Files
}

// Var is one environment variable.
type Var struct {
	Name, Value string
}
