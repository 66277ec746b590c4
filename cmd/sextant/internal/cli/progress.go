package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sextant-node/sextant/cmd/sextant/internal/node"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
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

// apiPatience is how long an API server that does not answer is waited for. The
// node does not need it to run.
const apiPatience = 10 * time.Second

// awaitServices waits until every service says it does its work, or does all of it
// that can be done without the API server.
func awaitServices(ctx context.Context, plan *node.Plan) (string, error) {
	waiting, alone := "", ""
	var since time.Time
	err := every(ctx, 50*time.Millisecond, func() bool {
		now := lookAround(ctx, plan)
		if ctx.Err() != nil && waiting != "" {
			return false // the time is over; what was waited for before is the reason
		}
		waiting = now.text
		if now.text == "" {
			return true
		}
		if now.api == "" {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < apiPatience {
			return false
		}
		alone = now.api
		return true
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w (logs: %s)", waiting, err, plan.LogDir)
	}
	remark := fmt.Sprintf("%d processes", len(house.Services()))
	if alone != "" {
		remark += "; waiting for the API server, and going on without it: " + alone
	}
	return remark, nil
}

// awaitSources are the services that are not complete before every source of pods was
// read. The pods that are known they run and probe.
var awaitSources = []house.Service{house.Config, house.PodWorker, house.Prober}

// surroundings are what keeps the node from being all that it should be.
type surroundings struct {
	// text names a service and why it does not do its work; empty when all do.
	text string
	// api is set when only the API server is missing: what was heard of it last.
	api string
}

// said is how one service answered.
type said struct {
	service house.Service
	health  nodev1.Health // unspecified for one that did not answer
	reason  string
}

// lookAround asks every service how it fares and, where that matters, config about
// the sources of pods.
func lookAround(ctx context.Context, plan *node.Plan) surroundings {
	var answers []said
	for _, s := range house.Services() {
		if s == house.Bus && plan.Bus != "" {
			continue
		}
		answer := said{service: s}
		if hello, err := helloOf(ctx, plan.Paths(), s); err != nil {
			answer.reason = err.Error()
		} else {
			answer.health, answer.reason = hello.GetHealth(), hello.GetHealthReason()
		}
		answers = append(answers, answer)
	}
	return judge(answers, func() map[string]*configv1.Source {
		sources, err := pull(ctx, plan.Paths(), house.ConfigSources, feed.Message[*configv1.Source])
		if err != nil {
			return nil // nothing is known of them
		}
		return sources
	})
}

// judge tells what is missing. What nobody else explains comes first, then config's own
// reason, then those of who waits for config.
func judge(answers []said, sources func() map[string]*configv1.Source) (now surroundings) {
	onlySources := true
	for _, a := range answers {
		if a.health == nodev1.Health_HEALTH_SERVING {
			continue
		}
		text := fmt.Sprintf("%s: %s", a.service, a.reason)
		if a.health != nodev1.Health_HEALTH_STARTING || !slices.Contains(awaitSources, a.service) {
			if onlySources {
				now.text = text
			}
			onlySources = false
			continue
		}
		if onlySources && (now.text == "" || a.service == house.Config) {
			now.text = text
		}
	}
	if now.text != "" && onlySources {
		now.api = apiAwaited(sources())
	}
	return now
}

// apiAwaited is what was heard of the API server last, if it is the only source of
// pods that was not read; empty otherwise.
func apiAwaited(sources map[string]*configv1.Source) (api string) {
	for name, s := range sources {
		switch {
		case s.GetComplete():
		case name != pod.SourceAPI:
			return ""
		case s.GetError() == "":
			api = "no answer yet"
		default:
			api = s.GetError()
		}
	}
	return api
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
