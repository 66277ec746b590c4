// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// patience says how long a call may take.
type patience int

const (
	// bounded by runtimeRequestTimeout.
	bounded patience = iota
	// doubled: twice that. A sandbox waits for its network.
	doubled
	// graceful is runtimeRequestTimeout beyond the grace, which the requests of podworker
	// tell. Others' are unbounded.
	graceful
	// unbounded calls end with the work or with the caller: pulls, streams, and commands, but for those
	// that have a time (Broker.patient).
	unbounded
)

// method is one method of the CRI.
type method struct {
	// operation is the label operation_type of the kubelet's metrics.
	operation string
	patience  patience
	image     bool // belongs to ImageService
	kind      kind
}

// kind is what a method has the runtime do. Calls of all but the first wait for their turn.
type kind int

const (
	other kind = iota
	starting
	stopping
	removing
)

// methods holds every method of the CRI by its full name.
var methods = allMethods()

// operations lists where the kubelet's label is not simply the name in snake case.
var operations = map[string]string{
	"RunPodSandbox":             "run_podsandbox",
	"StopPodSandbox":            "stop_podsandbox",
	"RemovePodSandbox":          "remove_podsandbox",
	"PodSandboxStatus":          "podsandbox_status",
	"ListPodSandbox":            "list_podsandbox",
	"PodSandboxStats":           "podsandbox_stats",
	"ListPodSandboxStats":       "list_podsandbox_stats",
	"ListPodSandboxMetrics":     "list_podsandbox_metrics",
	"UpdatePodSandboxResources": "update_podsandbox_resources",
	"UpdateContainerResources":  "update_container",
}

var patienceOf = map[string]patience{
	"RunPodSandbox":       doubled,
	"PullImage":           unbounded,
	"ExecSync":            unbounded,
	"StopContainer":       graceful,
	"CheckpointContainer": unbounded,
}

var kindOf = map[string]kind{
	"RunPodSandbox": starting, "CreateContainer": starting, "StartContainer": starting,
	"StopContainer": stopping, "RemoveContainer": removing, "RemovePodSandbox": removing,
}

func allMethods() map[string]method {
	all := map[string]method{}
	for _, desc := range []*grpc.ServiceDesc{&runtimeapi.RuntimeService_ServiceDesc, &runtimeapi.ImageService_ServiceDesc} {
		image := desc == &runtimeapi.ImageService_ServiceDesc
		for _, m := range desc.Methods {
			all["/"+desc.ServiceName+"/"+m.MethodName] = method{operationOf(m.MethodName), patienceOf[m.MethodName], image, kindOf[m.MethodName]}
		}
		for _, s := range desc.Streams {
			all["/"+desc.ServiceName+"/"+s.StreamName] = method{operationOf(s.StreamName), unbounded, image, other}
		}
	}
	return all
}

func operationOf(name string) string {
	if op, ok := operations[name]; ok {
		return op
	}
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// limit is how long a call of this method may take, given runtimeRequestTimeout;
// zero for no limit.
func (m method) limit(timeout time.Duration) time.Duration {
	switch m.patience {
	case doubled:
		return 2 * timeout
	case bounded:
		return timeout
	}
	return 0
}
