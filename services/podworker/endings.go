package podworker

import (
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/shutdown"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// seenBy is what others see of a worker's pod; loop.mu guards it.
type seenBy struct {
	state    step.State
	priority int32
	// runs: something of it runs although nothing was decided about it.
	runs bool
	// static is nil while no specification is known.
	static *bool
}

// show tells others about the pod.
func (w *worker) show() {
	seen := seenBy{state: w.facts.State}
	if w.accepted != nil {
		seen.priority = priority(w.accepted)
		static := pod.IsStatic(w.accepted)
		seen.static = &static
	}
	if seen.state == step.Pending || seen.state == "" {
		record, _ := w.current()
		seen.runs = record != nil && record.Alive()
	}
	w.outward = seen
}

func priority(p *v1.Pod) int32 {
	if p == nil || p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Ending implements endings. Pods that were refused, and those that wait to be
// taken up, have nothing to end.
func (l *loop) Ending() (pods []shutdown.Pod, known bool) {
	c := l.Config()
	standalone := c != nil && c.Node.KubeConfig == "" && c.Node.BootstrapKubeConfig == ""
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, w := range l.workers {
		s := w.outward
		switch s.state {
		case step.Rejected:
			continue
		case step.Pending, "":
			if !s.runs {
				continue
			}
		}
		// A static pod is not over, and what only the runtime knows has no status.
		local := standalone || s.static == nil || *s.static
		pods = append(pods, shutdown.Pod{
			UID: uid, Priority: s.priority, Gone: s.state == step.Released, Told: local || l.told(string(uid)),
		})
	}
	return pods, l.complete
}

// told tells whether the API server knows that a pod has ended.
func (l *loop) told(uid string) bool {
	report, ok := l.in.Reports.Get(uid)
	if !ok || !report.GetReported() {
		return false
	}
	status := &v1.PodStatus{}
	return status.Unmarshal(report.GetStatus()) == nil && pod.IsTerminalPhase(status.Phase)
}

// downfall is what the end of the node means for the pod.
func (w *worker) downfall() step.Shutdown {
	active, end, within := w.l.end.turn(priority(w.accepted))
	return step.Shutdown{Active: active, End: end, Grace: within}
}
