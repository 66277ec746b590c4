// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// tries is how often a container is asked that could not be, as by the kubelet.
const tries = 3

// Run runs one probe within its timeout (v1.Probe.TimeoutSeconds, at least 1 s); one
// that ends in an error at once is run again. Unknown means that the container was
// never asked, or that this process was held up and read the answer too late.
func (p *Prober) Run(ctx context.Context, spec v1.Probe, s Subject) (o Outcome) {
	timeout, first := pod.Seconds(int64(max(spec.TimeoutSeconds, 1))), time.Now()
	for range tries {
		began := time.Now()
		o = p.run(ctx, spec, s, timeout)
		if spec.Exec == nil { // else the runtime takes the time
			o = heldUp(o, time.Since(began), timeout)
		}
		if o.Error == "" || ctx.Err() != nil || time.Since(first) > timeout {
			break
		}
	}
	o.Message, o.Warning, o.Error = text(o.Message), text(o.Warning), text(o.Error)
	return o
}

// overdue is how much later than its timeout a probe ends only because this
// process did not run: it was stopped, or the machine was suspended or starved it.
const overdue = 3 * time.Second

// heldUp takes back a failure that is not the container's.
func heldUp(o Outcome, took, timeout time.Duration) Outcome {
	if o.Result == schedule.Failure && took > timeout+overdue {
		return Outcome{Result: schedule.Unknown, Message: fmt.Sprintf("prober was held up: a probe with a timeout of %s ended after %s", timeout, took)}
	}
	return o
}

func (p *Prober) run(ctx context.Context, spec v1.Probe, s Subject, timeout time.Duration) Outcome {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case s.PodIP == "" && namedHost(spec) == "" && spec.Exec == nil:
		return Outcome{Result: schedule.Unknown, Message: "the pod has no IP"}
	case spec.Exec != nil:
		return p.exec(ctx, spec.Exec, s, timeout)
	case spec.HTTPGet != nil:
		return p.http(ctx, spec.HTTPGet, s)
	case spec.TCPSocket != nil:
		return p.tcp(ctx, spec.TCPSocket, s)
	case spec.GRPC != nil:
		return p.grpc(ctx, spec.GRPC, s)
	}
	return Outcome{Result: schedule.Unknown, Message: "probe has no handler"}
}
