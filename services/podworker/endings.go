// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/shutdown"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// Ending implements endings. Pods that were refused, and those that wait to be
// taken up, have nothing to end. What an API server that is away may list besides is not
// waited for.
func (l *loop) Ending() (pods []shutdown.Pod, known bool) {
	c := l.config.Config()
	standalone := c != nil && c.Node.KubeConfig == "" && c.Node.BootstrapKubeConfig == ""
	said := l.in.podsSaid() && l.in.Records.Listed()
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
			UID: uid, Priority: s.priority, Gone: s.state == step.Released, Told: local || l.in.reportedEnd(uid),
		})
	}
	return pods, l.complete || said && l.seenLocked()
}

// reportedEnd reports whether the API server has the pod as finished.
func (in *Inputs) reportedEnd(uid types.UID) bool {
	report, ok := in.Reports.Get(string(uid))
	if !ok || !report.GetReported() {
		return false
	}
	status := &v1.PodStatus{}
	return status.Unmarshal(report.GetStatus()) == nil && pod.IsTerminalPhase(status.Phase)
}
