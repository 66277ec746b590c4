// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/supervisor"
)

// progress prints a line for each step: its name, its result, its duration, a remark. A step
// that is done is done, whether or not its line is read.
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
	fmt.Fprintf(p.out, "%-26s %-7s %6.1f s  %s\n", name, mark, time.Since(began).Seconds(), remark)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// apiPatience is how long `up` waits for an API server that does not answer. The node
// runs without it.
const apiPatience = 10 * time.Second

// awaitServices waits until every service is serving, or only waits for the API server.
func awaitServices(ctx context.Context, plan *supervisor.Plan) (string, error) {
	waiting, alone := "", ""
	var since time.Time
	err := every(ctx, 50*time.Millisecond, func() bool {
		now := lookAround(ctx, plan)
		if ctx.Err() != nil && waiting != "" {
			return false // the time is over: the reason read before is the error
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
		return "", fmt.Errorf("%s: %w (logs: %s)", advised(waiting), err, plan.LogDir)
	}
	remark := fmt.Sprintf("%d processes", len(house.Services()))
	if alone != "" {
		remark += "; started without the API server, which is retried:  " + alone
	}
	return remark, nil
}

// awaitSources are the services that report STARTING until every source of pods was
// read. They run and probe the pods known before.
var awaitSources = []house.Service{house.Config, house.PodWorker, house.Prober}

// surroundings is why the node is not fully up.
type surroundings struct {
	// text names a service and why it is not serving; empty when all are.
	text string
	// api is the last error of the API server, set when nothing else is missing.
	api string
}

// said is how one service answered.
type said struct {
	service house.Service
	health  nodev1.Health // unspecified for one that did not answer
	reason  string
}

// lookAround asks every service for its health and, where that matters, config for the
// sources of pods.
func lookAround(ctx context.Context, plan *supervisor.Plan) surroundings {
	var answers []said
	for _, s := range house.Services() {
		if s == house.Bus && plan.Bus != "" {
			continue
		}
		answer := said{service: s}
		if hello, err := helloOf(ctx, plan.Paths(), s); err != nil {
			answer.reason = silence(plan, s, err)
		} else {
			answer.health, answer.reason = hello.GetHealth(), hello.GetHealthReason()
		}
		answers = append(answers, answer)
	}
	return judge(answers, func() map[string]*configv1.Source {
		sources, err := service.Pull(ctx, plan.Paths(), house.ConfigSources, feed.Whole[*configv1.Source])
		if err != nil {
			return nil // unknown
		}
		return sources
	})
}

// judge reports what is missing. In this order: a service that waits for something
// other than config; config's own reason; a service that waits for config.
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

// apiAwaited is the last error of the API server, if it is the only source of pods that
// was not read; empty otherwise.
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

// narrate says what a node that starts in the foreground waits for, each cause that stands
// for a moment once, until the node is Ready: the services serve, and status would tell
// the API server that it is.
func narrate(ctx context.Context, plan *supervisor.Plan, began time.Time, say func(string)) {
	const moment, most = time.Second, 5 * time.Second
	var waits, said string
	var since time.Time
	pause := 50 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := lookAround(ctx, plan).text
		if now == "" {
			name, notReady := nodeReady(ctx, plan)
			if notReady == "" {
				say(fmt.Sprintf("node %s is Ready after %.1f s", name, time.Since(began).Seconds()))
				return
			}
			now = "node: " + notReady
		}
		if now != waits {
			waits, since = now, time.Now()
		}
		if waits != said && time.Since(since) >= moment && ctx.Err() == nil {
			say("waits for " + advised(waits))
			said = waits
		}
		pause = min(pause*5/4, most)
		timer.Reset(pause)
	}
}

// nodeReady is the node's name, and why it is not Ready; empty when it is.
func nodeReady(ctx context.Context, plan *supervisor.Plan) (name, reason string) {
	reports, err := service.Pull(ctx, plan.Paths(), house.StatusNode, feed.Whole[*statusv1.NodeReport])
	if err != nil {
		return "", err.Error()
	}
	for _, report := range reports {
		st := v1.NodeStatus{}
		if err := st.Unmarshal(report.GetStatus()); err != nil {
			return "", err.Error()
		}
		for _, c := range st.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				return report.GetName(), ""
			}
			if c.Type == v1.NodeReady {
				return report.GetName(), c.Message
			}
		}
	}
	return "", "its status is not known yet"
}

// awaitPods waits until want pods are running and ready.
func awaitPods(ctx context.Context, plan *supervisor.Plan, want int) (string, error) {
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

var errTimeout = errors.New("timeout")

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
