// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions are those of others in their order, then the node's own: pressures,
// and Ready last.
func conditions(in Input) []v1.NodeCondition {
	var out []v1.NodeCondition
	for _, c := range in.Old.Conditions {
		switch c.Type {
		case v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, v1.NodeReady:
		default:
			out = append(out, c)
		}
	}
	add := func(c *v1.NodeCondition) {
		if c == nil {
			return
		}
		c.LastHeartbeatTime = metav1.NewTime(in.Now)
		c.LastTransitionTime = c.LastHeartbeatTime
		if old := find(in.Old.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out = append(out, *c)
	}
	for _, p := range pressures {
		add(p.condition(in))
	}
	add(ready(in))
	return out
}

type pressure struct {
	kind                   v1.NodeConditionType
	reasonFalse, textFalse string
	reasonTrue, textTrue   string
	under                  func(*Resources) bool
}

var pressures = []pressure{
	{
		v1.NodeMemoryPressure,
		"KubeletHasSufficientMemory", "kubelet has sufficient memory available",
		"KubeletHasInsufficientMemory", "kubelet has insufficient memory available",
		func(r *Resources) bool { return r.MemoryPressure },
	},
	{
		v1.NodeDiskPressure,
		"KubeletHasNoDiskPressure", "kubelet has no disk pressure",
		"KubeletHasDiskPressure", "kubelet has disk pressure",
		func(r *Resources) bool { return r.DiskPressure },
	},
	{
		v1.NodePIDPressure,
		"KubeletHasSufficientPID", "kubelet has sufficient PID available",
		"KubeletHasInsufficientPID", "kubelet has insufficient PID available",
		func(r *Resources) bool { return r.PID },
	},
}

// condition is nil while the pressure is not known and never was.
func (p pressure) condition(in Input) *v1.NodeCondition {
	if in.Resources == nil {
		return find(in.Old.Conditions, p.kind).DeepCopy()
	}
	if p.under(in.Resources) {
		return &v1.NodeCondition{Type: p.kind, Status: v1.ConditionTrue, Reason: p.reasonTrue, Message: p.textTrue}
	}
	return &v1.NodeCondition{Type: p.kind, Status: v1.ConditionFalse, Reason: p.reasonFalse, Message: p.textFalse}
}

// problem is something that keeps the node from being ready.
type problem struct {
	text string
	// since is set for what is not known, rather than known to be wrong: when it
	// began not to be.
	since time.Time
}

// ready judges the node. While all that is wrong is that something has not been known
// for less than the grace, it stays as it was.
func ready(in Input) *v1.NodeCondition {
	list := problems(in)
	held := len(list) > 0
	texts := make([]string, 0, len(list))
	for _, p := range list {
		held = held && !p.since.IsZero() && in.Now.Sub(p.since) < Grace
		if !slices.Contains(texts, p.text) {
			texts = append(texts, p.text)
		}
	}
	if old := find(in.Old.Conditions, v1.NodeReady); old != nil && held {
		return old.DeepCopy()
	}
	switch len(texts) {
	case 0:
		return &v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	case 1:
		return notReady(texts[0])
	}
	return notReady("[" + strings.Join(texts, ", ") + "]")
}

func notReady(message string) *v1.NodeCondition {
	return &v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
}

// problems are in the kubelet's order: runtime, network, storage, shutdown, capacity; then what
// only a node of several processes has.
func problems(in Input) []problem {
	list := runtimeProblems(in)
	if in.CSINode != "" {
		list = append(list, problem{in.CSINode, in.Started})
	}
	switch {
	case in.ShuttingDown != nil && *in.ShuttingDown:
		list = append(list, problem{text: "node is shutting down"})
	case in.ShuttingDown == nil && in.Now.Sub(in.Started) < Grace && wasDown(in.Old):
		list = append(list, problem{"node is shutting down", in.Started})
	}
	if missing := missingCapacity(in); len(missing) > 0 {
		list = append(list, problem{"missing node capacity for resources: " + strings.Join(missing, ", "), in.Started})
	}
	if in.Sources == nil {
		list = append(list, problem{"pod sources were not read yet", in.Started})
	}
	for _, s := range in.Sources {
		if s.Name == "api" && !s.Complete {
			list = append(list, problem{"pods of the API server were not read yet", s.Since})
		}
	}
	for _, a := range in.Away {
		if in.Now.Sub(a.Since) >= Grace {
			list = append(list, problem{text: fmt.Sprintf("%s has not answered for more than %s", a.Service, Grace)})
		}
	}
	return list
}

// wasDown reports whether the node was on its way down when its status was last said:
// one that is nearly gone must not be ready again because this process was restarted.
func wasDown(old v1.NodeStatus) bool {
	ready := find(old.Conditions, v1.NodeReady)
	return ready != nil && strings.Contains(ready.Message, "node is shutting down")
}

func runtimeProblems(in Input) (list []problem) {
	r := in.Runtime
	if r != nil && !r.Responding && in.Now.Sub(r.Since) >= runtimeGrace {
		return []problem{{text: join("container runtime is down", r.Error)}}
	}
	if r == nil || !r.Asked {
		since := in.Started
		if r != nil && r.Since.After(since) {
			since = r.Since // pleg was restarted
		}
		return []problem{{"container runtime status check may not have completed yet", since}}
	}
	for _, want := range []struct{ kind, text string }{
		{"RuntimeReady", "container runtime not ready: "}, {"NetworkReady", "container runtime network not ready: "},
	} {
		at := slices.IndexFunc(r.Conditions, func(c RuntimeCondition) bool { return c.Type == want.kind })
		switch {
		case at < 0:
			list = append(list, problem{text: want.text + "the runtime does not tell"})
		case !r.Conditions[at].Status:
			c := r.Conditions[at]
			list = append(list, problem{text: fmt.Sprintf("%s%s=false reason:%s message:%s", want.text, c.Type, c.Reason, c.Message)})
		}
	}
	return list
}

func join(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + ": " + detail
}

// missingCapacity names the resources without which no pod can be placed.
func missingCapacity(in Input) (missing []string) {
	want := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}
	if in.EphemeralStorage {
		want = append(want, v1.ResourceEphemeralStorage)
	}
	for _, name := range want {
		if in.Resources == nil {
			missing = append(missing, string(name))
		} else if _, ok := in.Resources.Capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	return missing
}

func find(list []v1.NodeCondition, t v1.NodeConditionType) *v1.NodeCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// Heartbeat is when a status was last said; zero for never.
func Heartbeat(s v1.NodeStatus) time.Time {
	if ready := find(s.Conditions, v1.NodeReady); ready != nil {
		return ready.LastHeartbeatTime.Time
	}
	return time.Time{}
}
