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

// gap is something that is not known, since when.
type gap struct {
	text  string
	since time.Time
}

// ready judges the node. While all that is wrong is that something has not been known
// for less than the grace, it stays as it was.
func ready(in Input) *v1.NodeCondition {
	known, gaps := problems(in)
	held := len(gaps) > 0 && len(known) == 0
	for _, g := range gaps {
		held = held && in.Now.Sub(g.since) < Grace
		known = append(known, g.text)
	}
	if old := find(in.Old.Conditions, v1.NodeReady); old != nil && held {
		return old.DeepCopy()
	}
	if len(known) > 0 {
		message := known[0]
		if len(known) > 1 {
			message = "[" + strings.Join(known, ", ") + "]"
		}
		return &v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
	}
	return &v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
}

// problems are what keeps the node from being ready: what is known to be wrong, and
// what is not known.
func problems(in Input) (known []string, gaps []gap) {
	known = append(known, runtimeProblems(in)...)
	if r := in.Runtime; r == nil || (!r.Asked && len(known) == 0) {
		since := in.Started
		if r != nil && r.Since.After(since) {
			since = r.Since // pleg has started anew
		}
		gaps = append(gaps, gap{"container runtime status check may not have completed yet", since})
	}
	if missing := missingCapacity(in); len(missing) > 0 {
		gaps = append(gaps, gap{"missing node capacity for resources: " + strings.Join(missing, ", "), in.Started})
	}
	if in.Sources == nil {
		gaps = append(gaps, gap{"pod sources were not read yet", in.Started})
	}
	for _, s := range in.Sources {
		if s.Name == "api" && !s.Complete {
			gaps = append(gaps, gap{"pods of the API server were not read yet", s.Since})
		}
	}
	for _, a := range in.Away {
		if gone := in.Now.Sub(a.Since); gone >= Grace {
			known = append(known, fmt.Sprintf("%s has not answered for %s", a.Service, gone.Truncate(time.Second)))
		}
	}
	return known, gaps
}

func runtimeProblems(in Input) (problems []string) {
	r := in.Runtime
	if r == nil {
		return nil
	}
	if !r.Responding && in.Now.Sub(r.Since) >= runtimeGrace {
		return []string{join("container runtime is down", r.Error)}
	}
	for _, c := range r.Conditions {
		if c.Status {
			continue
		}
		text := fmt.Sprintf("%s=false reason:%s message:%s", c.Type, c.Reason, c.Message)
		switch c.Type {
		case "RuntimeReady":
			problems = append(problems, "container runtime not ready: "+text)
		case "NetworkReady":
			problems = append(problems, "container runtime network not ready: "+text)
		}
	}
	return problems
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
	slices.Sort(missing)
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
