package probe

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// execSlack is how much longer than the probe's timeout the call may take: the
// runtime enforces the timeout itself, and kills what it started.
const execSlack = 2 * time.Second

// exec runs a command in the container (CRI ExecSync). Exit code 0 is success;
// a command that times out has failed; a call that never reached the container
// decides nothing.
func (p *Prober) exec(ctx context.Context, action *v1.ExecAction, s Subject, timeout time.Duration) Outcome {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+execSlack)
	defer cancel()
	resp, err := p.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: s.ContainerID, Cmd: action.Command, Timeout: int64(timeout.Seconds()),
	})
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return failed("command timed out: %q timed out after %s", fmt.Sprint(action.Command), timeout)
	case err != nil:
		return Outcome{Result: schedule.Unknown, Message: status.Convert(err).Message()}
	}
	output := resp.GetStdout()
	output = append(output, resp.GetStderr()...)
	if len(output) > maxBody {
		output = output[:maxBody]
	}
	if resp.GetExitCode() != 0 {
		return Outcome{Result: schedule.Failure, Message: string(output)}
	}
	return Outcome{Result: schedule.Success, Message: string(output)}
}
