// SPDX-License-Identifier: Apache-2.0

// Package observe turns pleg's records into what decisions are made from. It is
// a pure translation and keeps nothing.
package observe

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// Record is what the runtime has of one pod. It is shared: do not write to it.
type Record struct {
	UID             types.UID
	Namespace, Name string
	// Error is why the runtime could not be read for this pod.
	Error      string
	Sandboxes  []step.Sandbox
	Containers []step.Instance
	// Statuses by container ID, as the runtime gave them.
	Statuses map[string]*runtimeapi.ContainerStatus
}

// Decode reads a record. A sandbox or container that cannot be read fails the
// whole: a record with a hole would have things made twice.
func Decode(_ string, record *plegv1.PodRecord) (*Record, error) {
	r := &Record{
		UID: types.UID(record.GetUid()), Namespace: record.GetNamespace(), Name: record.GetName(), Error: record.GetError(),
		Statuses: map[string]*runtimeapi.ContainerStatus{},
	}
	for _, raw := range record.GetSandboxes() {
		s := &runtimeapi.PodSandboxStatus{}
		if err := proto.Unmarshal(raw, s); err != nil {
			return nil, fmt.Errorf("sandbox of pod %s: %w", r.UID, err)
		}
		r.Sandboxes = append(r.Sandboxes, sandbox(s))
	}
	for _, raw := range record.GetContainers() {
		s := &runtimeapi.ContainerStatus{}
		if err := proto.Unmarshal(raw, s); err != nil {
			return nil, fmt.Errorf("container of pod %s: %w", r.UID, err)
		}
		i, err := instance(s)
		if errors.Is(err, pod.ErrNotOurs) {
			continue
		}
		i.Sandbox = record.GetSandboxOf()[i.ID]
		r.Containers = append(r.Containers, i)
		r.Statuses[i.ID] = s
	}
	return r, nil
}

func sandbox(s *runtimeapi.PodSandboxStatus) step.Sandbox {
	out := step.Sandbox{
		ID: s.GetId(), Attempt: s.GetMetadata().GetAttempt(),
		Ready:       s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
	}
	for _, extra := range s.GetNetwork().GetAdditionalIps() {
		if extra.GetIp() != "" {
			out.IPs = append(out.IPs, extra.GetIp())
		}
	}
	return out
}

var states = map[runtimeapi.ContainerState]step.RuntimeState{
	runtimeapi.ContainerState_CONTAINER_CREATED: step.Created,
	runtimeapi.ContainerState_CONTAINER_RUNNING: step.Running,
	runtimeapi.ContainerState_CONTAINER_EXITED:  step.Exited,
	runtimeapi.ContainerState_CONTAINER_UNKNOWN: step.Unknown,
}

func instance(s *runtimeapi.ContainerStatus) (step.Instance, error) {
	info, err := pod.ParseContainer(s.GetLabels(), s.GetAnnotations())
	if errors.Is(err, pod.ErrNotOurs) {
		return step.Instance{}, err
	}
	// Annotations that cannot be read leave their fields empty.
	i := step.Instance{
		ID: s.GetId(), Name: info.Name, State: states[s.GetState()],
		RestartCount: max(info.RestartCount, int(s.GetMetadata().GetAttempt())),
		Hash:         info.Hash, ExitCode: s.GetExitCode(), PreStop: info.PreStop != nil,
	}
	i.CreatedAt = time.Unix(0, s.GetCreatedAt())
	if i.State == step.Exited {
		i.NeverRan = s.GetStartedAt() == 0
		i.FinishedAt = time.Unix(0, s.GetFinishedAt())
		if s.GetFinishedAt() == 0 { // it never ran
			i.FinishedAt = time.Unix(0, s.GetCreatedAt())
		}
	}
	return i, nil
}

// Pod is a pod that carries no more than what the record tells: enough to stop
// and to remove what is there.
func (r *Record) Pod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: r.Namespace, UID: r.UID}}
}

// Alive reports whether anything in the record runs.
func (r *Record) Alive() bool {
	return slices.ContainsFunc(r.Sandboxes, func(s step.Sandbox) bool { return s.Ready }) ||
		slices.ContainsFunc(r.Containers, func(c step.Instance) bool { return c.State == step.Running || c.State == step.Unknown })
}
