// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod/env"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// execSlack is Prober.Slack's default: a runtime reads the output to its end, and
// a child that the command has left may hold that open.
const execSlack = 2 * time.Minute

// exec runs a command in the container (CRI ExecSync). Exit code 0 is success;
// a command that the runtime ended when its time was over has failed; a call that
// never reached the container, or was never answered, decides nothing.
func (p *Prober) exec(ctx context.Context, action *v1.ExecAction, s Subject, timeout time.Duration) Outcome {
	slack := cmp.Or(p.Slack, execSlack)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+slack)
	defer cancel()
	command, err := env.ProbeCommand(action, s.Container)
	if err != nil {
		return errored(err)
	}
	began := time.Now()
	resp, err := p.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: s.ContainerID, Cmd: command, Timeout: int64(timeout.Seconds()),
	})
	switch {
	case status.Code(err) == codes.DeadlineExceeded && time.Since(began) > timeout+slack/2:
		// It was our patience that ended, here or at the broker, which knows of it.
		return Outcome{Result: schedule.Unknown, Message: "the runtime did not answer"}
	case status.Code(err) == codes.DeadlineExceeded:
		return failed("command timed out: %q timed out after %s", strings.Join(command, " "), timeout)
	case status.Code(err) == codes.Unavailable:
		return Outcome{Result: schedule.Unknown, Message: status.Convert(err).Message()} // the runtime or the broker is away
	case err != nil:
		return errored(status.Convert(err).Err()) // with its code, as a kubelet's event has it
	}
	output := resp.GetStdout()
	output = append(output, resp.GetStderr()...)
	if resp.GetExitCode() != 0 {
		return Outcome{Result: schedule.Failure, Message: string(output)}
	}
	return Outcome{Result: schedule.Success, Message: string(output)}
}
