package nodeapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// run answers /run: a command's output, standard error last. The command is cut
// at single spaces. One that fails is a 500 with its standard error alone (the
// kubelet's rules).
func (s *Service) run(w http.ResponseWriter, r *http.Request) {
	p, err := s.find(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	if err != nil {
		refuse(w, err)
		return
	}
	t := &target{pod: p, container: r.PathValue("container"), once: true}
	t.missing = fmt.Sprintf("container not found (%q)", t.container)
	command := strings.Split(r.FormValue("cmd"), " ")
	ended := s.record(r, session{kind: "run", target: t, command: command})
	output, err := s.output(r.Context(), t, command)
	ended(false)
	if err != nil {
		refuse(w, &refusal{http.StatusInternalServerError, err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/json") // whatever it is: the kubelet says so
	_, _ = w.Write(output)                             // a caller that went away
}

func (s *Service) output(ctx context.Context, t *target, command []string) (output []byte, err error) {
	err = s.resolve(ctx, t, func(id string) error {
		resp, err := s.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if code := resp.GetExitCode(); code != 0 {
			return &refusal{http.StatusInternalServerError, fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(command, " "), code, resp.GetStderr())}
		}
		output = append(resp.GetStdout(), resp.GetStderr()...)
		return nil
	})
	return output, err
}
