// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NewerSandbox orders the sandboxes of a pod, newest first: by their attempt, which is one
// more for each that is made, and only then by when they were made. The node's clock may
// have been set back in between.
func NewerSandbox(a, b *runtimeapi.PodSandboxStatus) int {
	return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
		cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
}

// NewerContainer orders the instances of a container, newest first, as NewerSandbox does.
// It says nothing about containers of different names.
func NewerContainer(a, b *runtimeapi.ContainerStatus) int {
	return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
		cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
}
