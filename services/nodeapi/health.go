package nodeapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// check is one part of /healthz.
type check struct {
	name string
	run  func(context.Context) error
}

// checks are the kubelet's names. ping and log are this process's own; syncloop
// is the workers', who are podworker's.
func (s *Service) checks() []check {
	return []check{
		{"ping", func(context.Context) error { return nil }},
		{"log", func(context.Context) error { return nil }},
		{"syncloop", s.syncloop},
	}
}

func (s *Service) syncloop(ctx context.Context) error {
	conn, err := s.kit.Dial(house.PodWorker)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	hello, err := nodev1.NewNodeServiceClient(conn).Hello(ctx, &nodev1.HelloRequest{Service: string(house.NodeAPI), Protocol: house.Protocol})
	if err != nil {
		return fmt.Errorf("podworker does not answer: %w", err)
	}
	if hello.GetHealth() != nodev1.Health_HEALTH_SERVING {
		return fmt.Errorf("podworker: %s", hello.GetHealthReason())
	}
	return nil
}

// healthz runs all checks but those excluded; ?verbose lists them.
func (s *Service) healthz(w http.ResponseWriter, r *http.Request) {
	excluded := r.URL.Query()["exclude"]
	var lines strings.Builder
	failed := false
	for _, c := range s.checks() {
		if slices.Contains(excluded, c.name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.name)
			continue
		}
		if err := c.run(r.Context()); err != nil {
			failed = true
			s.kit.Log.Warn("healthz", "check", c.name, "error", err.Error())
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.name)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
	}
	switch _, verbose := r.URL.Query()["verbose"]; {
	case failed:
		http.Error(w, lines.String()+"healthz check failed", http.StatusInternalServerError)
	case verbose:
		text(lines.String()+"healthz check passed\n")(w, r)
	default:
		text("ok")(w, r)
	}
}

func (s *Service) healthzCheck(w http.ResponseWriter, r *http.Request) {
	for _, c := range s.checks() {
		if c.name != r.PathValue("check") {
			continue
		}
		if err := c.run(r.Context()); err != nil {
			http.Error(w, "internal server error: "+err.Error(), http.StatusInternalServerError)
			return
		}
		text("ok")(w, r)
		return
	}
	http.NotFound(w, r)
}
