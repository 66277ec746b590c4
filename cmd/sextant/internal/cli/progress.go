package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sextant-node/sextant/cmd/sextant/internal/node"
	"github.com/sextant-node/sextant/pkg/house"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// progress prints one line a step: what, how long, and a remark.
type progress struct {
	out   io.Writer
	start time.Time
}

func (p *progress) step(name string, do func() (string, error)) error {
	began := time.Now()
	remark, err := do()
	mark := "ok"
	if err != nil {
		mark, remark = "FAILED", ""
	}
	_, printErr := fmt.Fprintf(p.out, "%-26s %-7s %6.1f s  %s\n", name, mark, time.Since(began).Seconds(), remark)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return printErr
}

// awaitServices waits until every service says it does its work.
func awaitServices(ctx context.Context, plan *node.Plan) (string, error) {
	waiting := ""
	err := every(ctx, 50*time.Millisecond, func() bool {
		for _, s := range house.Services() {
			if s == house.Bus && plan.Bus != "" {
				continue
			}
			hello, err := helloOf(ctx, plan.Paths(), s)
			switch {
			case ctx.Err() != nil && waiting != "":
				// The time is over; what was waited for before is the reason.
			case err != nil:
				waiting = fmt.Sprintf("%s: %v", s, err)
			case hello.GetHealth() != nodev1.Health_HEALTH_SERVING:
				waiting = fmt.Sprintf("%s: %s", s, hello.GetHealthReason())
			default:
				continue
			}
			return false
		}
		return true
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w (logs: %s)", waiting, err, plan.LogDir)
	}
	return fmt.Sprintf("%d processes", len(house.Services())), nil
}

// awaitPods waits until so many pods are running and ready.
func awaitPods(ctx context.Context, plan *node.Plan, want int) (string, error) {
	last := ""
	err := every(ctx, 100*time.Millisecond, func() bool {
		rows, err := podRows(ctx, plan.Paths())
		if err != nil {
			last = err.Error()
			return false
		}
		ready := 0
		var others []string
		for _, r := range rows {
			if have, of, _ := strings.Cut(r.Ready, "/"); r.Phase == "Running" && have == of {
				ready++
				continue
			}
			others = append(others, fmt.Sprintf("%s/%s %s %s", r.Namespace, r.Name, r.Phase, r.Reason))
		}
		last = fmt.Sprintf("%d of %d ready; %s", ready, want, strings.Join(others, ", "))
		return ready >= want
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w (logs: %s)", last, err, plan.LogDir)
	}
	return fmt.Sprintf("%d ready", want), nil
}

var errTimeout = errors.New("not in time")

func every(ctx context.Context, period time.Duration, ok func() bool) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return errTimeout
		case <-tick.C:
		}
	}
	return nil
}
