// Package judge is what the kill matrix thinks of what the API server and the
// runtime showed: values in, verdicts out.
package judge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Round is one fault and what came of it.
type Round struct {
	// Fault is what was done, such as "kill -9"; To is to whom: one service, two
	// with a plus between them, or a part beside the node.
	Fault, To string
	// Recovery is from the fault to Ready of a pod made at that moment; where a
	// fault lasts, from its end. 0 if that pod did not get there.
	Recovery time.Duration
	// Findings are what must not have happened, in words.
	Findings []Finding
}

// Kind sorts findings.
type Kind string

// The kinds of findings.
const (
	Flip      Kind = "flips"      // a condition or a phase changed
	Restart   Kind = "restarts"   // a container started again, or another runs in its place
	Duplicate Kind = "duplicates" // two containers or sandboxes where one belongs
	Lost      Kind = "lost"       // a pod that was deleted did not go
	Stuck     Kind = "stuck"      // a pod that was made did not get Ready

	Unmounted Kind = "unmounted" // a mount of a running pod is gone, or another is in its place
	Changed   Kind = "changed"   // a volume holds something else than before
	Orphan    Kind = "orphans"   // something is left of a pod that is gone
)

// Kinds are those that any fault may bring about, in the order of the table.
func Kinds() []Kind { return []Kind{Flip, Restart, Duplicate, Lost, Stuck} }

// VolumeKinds are those where volumes are looked at as well.
func VolumeKinds() []Kind { return append([]Kind{Unmounted, Changed, Orphan}, Kinds()...) }

// Finding is one thing that must not have happened.
type Finding struct {
	Kind Kind
	What string
}

// Steady compares a version of a pod with the one before it, both of a pod that
// nobody touched: nothing of what is told here may change.
func Steady(before, now *corev1.Pod) []Finding {
	var found []Finding
	name := now.Namespace + "/" + now.Name
	add := func(kind Kind, format string, args ...any) {
		found = append(found, Finding{kind, name + ": " + fmt.Sprintf(format, args...)})
	}
	if before.UID != now.UID {
		add(Restart, "another pod under the same name")
	}
	if before.Status.Phase != now.Status.Phase {
		add(Flip, "phase %s became %s", before.Status.Phase, now.Status.Phase)
	}
	was := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range before.Status.Conditions {
		was[c.Type] = c.Status
	}
	for _, c := range now.Status.Conditions {
		if old, had := was[c.Type]; had && old != c.Status {
			add(Flip, "%s %s became %s", c.Type, old, c.Status)
		}
		delete(was, c.Type)
	}
	for _, kind := range slices.Sorted(maps.Keys(was)) {
		add(Flip, "%s is missing", kind)
	}
	containers := map[string]corev1.ContainerStatus{}
	for _, c := range slices.Concat(before.Status.InitContainerStatuses, before.Status.ContainerStatuses) {
		containers[c.Name] = c
	}
	for _, c := range slices.Concat(now.Status.InitContainerStatuses, now.Status.ContainerStatuses) {
		old, had := containers[c.Name]
		if had && (old.RestartCount != c.RestartCount || old.ContainerID != c.ContainerID) {
			add(Restart, "container %s was %s (%d) and is %s (%d)", c.Name, old.ContainerID, old.RestartCount, c.ContainerID, c.RestartCount)
		}
		if had && old.Ready != c.Ready {
			add(Flip, "container %s ready %v became %v", c.Name, old.Ready, c.Ready)
		}
	}
	return found
}

// Runtime tells of pods that have something twice.
func Runtime(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) []Finding {
	twice := map[string]int{}
	for _, s := range sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			twice["sandbox of "+s.GetMetadata().GetName()+" "+s.GetMetadata().GetUid()]++
		}
	}
	for _, c := range containers {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			l := c.GetLabels()
			twice["container "+l["io.kubernetes.container.name"]+" of "+l["io.kubernetes.pod.name"]+" "+l["io.kubernetes.pod.uid"]]++
		}
	}
	var found []Finding
	for _, what := range slices.Sorted(maps.Keys(twice)) {
		if twice[what] > 1 {
			found = append(found, Finding{Duplicate, fmt.Sprintf("%d times the %s", twice[what], what)})
		}
	}
	return found
}

// Bad tells whether anything was found in any round.
func Bad(rounds []Round) bool {
	return slices.ContainsFunc(rounds, func(r Round) bool { return len(r.Findings) > 0 })
}

// Table shows rounds by fault and victim: how many, what of each kind was found,
// and, where rounds tell of recovery, how long a new pod took.
func Table(rounds []Round, kinds []Kind) string {
	type cell struct{ fault, to string }
	by := map[cell][]Round{}
	for _, r := range rounds {
		by[cell{r.Fault, r.To}] = append(by[cell{r.Fault, r.To}], r)
		by[cell{r.Fault, "(all)"}] = append(by[cell{r.Fault, "(all)"}], r)
	}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b cell) int {
		return strings.Compare(a.fault+"\x00"+a.to, b.fault+"\x00"+b.to)
	})
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	head := []string{"fault", "to", "times"}
	for _, k := range kinds {
		head = append(head, string(k))
	}
	timed := slices.ContainsFunc(rounds, func(r Round) bool { return r.Recovery > 0 })
	if timed {
		head = append(head, "new pod Ready p50", "p99", "max")
	}
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, key := range keys {
		row := []string{key.fault, key.to, fmt.Sprint(len(by[key]))}
		for _, k := range kinds {
			n := 0
			for _, r := range by[key] {
				for _, f := range r.Findings {
					if f.Kind == k {
						n++
					}
				}
			}
			row = append(row, fmt.Sprint(n))
		}
		var times []time.Duration
		for _, r := range by[key] {
			if r.Recovery > 0 {
				times = append(times, r.Recovery)
			}
		}
		if timed {
			for _, q := range []float64{.5, .99, 1} {
				row = append(row, quantile(times, q))
			}
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // into memory
	return b.String()
}

// quantile is by nearest rank, as a table shows it.
func quantile(times []time.Duration, q float64) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	rank := max(int(math.Ceil(q*float64(len(times)))), 1)
	return fmt.Sprintf("%.2f s", times[rank-1].Seconds())
}
