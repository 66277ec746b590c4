package gather

import (
	"strings"

	"github.com/sextant-node/sextant/pkg/pod/podstatus"
)

// Verdict reads pod-level reason and message of podworker, nil without a reason.
func Verdict(lifecycle podstatus.Lifecycle, reason, message string) *podstatus.Verdict {
	if reason == "" && lifecycle != podstatus.Rejected {
		return nil
	}
	v := &podstatus.Verdict{Reason: reason, Message: message}
	switch {
	case lifecycle == podstatus.Rejected:
		v.Kind = podstatus.VerdictRejected
	case reason == "DeadlineExceeded":
		v.Kind = podstatus.VerdictDeadline
	case reason == "Preempting":
		v.Kind, v.Disruption = podstatus.VerdictPreempted, true
	case reason == "Terminated" || reason == "NodeShutdown":
		v.Kind, v.Disruption = podstatus.VerdictShutdown, true
	default:
		v.Kind = podstatus.VerdictEvicted
		// What the eviction of pressure says; limits on local storage say otherwise.
		v.Disruption = strings.HasPrefix(message, "The node was low on resource") ||
			strings.HasPrefix(message, "The node had condition")
	}
	return v
}

// verdict completes podworker's verdict by resource's: limits on local storage
// are the pod's own fault and no disruption.
func verdict(v *podstatus.Verdict, e *Eviction) *podstatus.Verdict {
	if v == nil || e == nil || v.Kind != podstatus.VerdictEvicted {
		return v
	}
	out := *v
	out.Disruption = e.Signal != "" && !strings.HasSuffix(e.Signal, ".limit")
	return &out
}
