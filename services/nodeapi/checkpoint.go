package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// checkpoint answers /checkpoint: podworker has the runtime write an archive, and
// names it. Of several timeouts the last counts.
func (s *Service) checkpoint(w http.ResponseWriter, r *http.Request) {
	if conf := s.current(); conf != nil && !conf.Gate("ContainerCheckpoint") {
		http.NotFound(w, r)
		return
	}
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	p, err := s.find(r.Context(), namespace, name, "")
	if err != nil {
		refuse(w, err)
		return
	}
	if _, ok := containerOf(p, container); !ok {
		refuse(w, &refusal{http.StatusNotFound, fmt.Sprintf("container %v does not exist", container)})
		return
	}
	timeout, err := lastTimeout(r)
	if err != nil {
		refuse(w, err)
		return
	}
	ended := s.record(r, session{kind: "checkpoint", target: &target{pod: p, container: container}})
	resp, err := s.patient.Checkpoint(r.Context(), &podworkerv1.CheckpointRequest{
		Uid: string(p.UID), Container: container, Timeout: durationpb.New(timeout),
	}, grpc.WaitForReady(true))
	ended(false)
	if err != nil {
		if errors.Is(r.Context().Err(), context.Canceled) {
			return
		}
		refuse(w, &refusal{http.StatusInternalServerError, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", namespace, name, container, err)})
		return
	}
	writeJSON(w, map[string][]string{"items": {resp.GetLocation()}})
}

func lastTimeout(r *http.Request) (time.Duration, error) {
	all := r.URL.Query()["timeout"]
	if len(all) == 0 {
		return 0, nil
	}
	seconds, err := strconv.ParseInt(all[len(all)-1], 10, 64)
	if err != nil {
		return 0, &refusal{http.StatusNotFound, "cannot parse value of timeout parameter"}
	}
	return min(time.Duration(max(seconds, 0)), streamTimeout/time.Second) * time.Second, nil
}
