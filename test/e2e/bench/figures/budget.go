// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Line is a line of a service's log, as far as the budget reads it.
type Line struct {
	Time   time.Time `json:"time"`
	Msg    string    `json:"msg"`
	UID    string    `json:"uid"`
	Action string    `json:"action"`
}

// ReadLog reads JSON lines that are about pods; others are passed over.
func ReadLog(r io.Reader) ([]Line, error) {
	var all []Line
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var l Line
		if err := json.Unmarshal(lines.Bytes(), &l); err == nil && l.UID != "" {
			all = append(all, l)
		}
	}
	return all, lines.Err()
}

// Start is one pod start as its observers saw it: the client, the API server's
// audit log, and the services' logs.
type Start struct {
	UID string
	// Sent is when the client asked for the pod, Seen when its watch told of
	// Ready.
	Sent, Seen time.Time
	// Asked and Answered are when the API server got and had answered the write
	// that made the pod Ready.
	Asked, Answered time.Time
	// Lines are what config and podworker logged.
	Lines []Line
}

// stages are the moments that part one stage from the next, in order.
var stages = []struct {
	name string
	end  func(Start) time.Time
}{
	{"API server, watch, config: the pod is desired", func(s Start) time.Time { return s.first("pod desired", "") }},
	{"config to podworker: the first action begins", func(s Start) time.Time { return s.first("action begins", "") }},
	{"admission, cgroup, volumes: the sandbox begins", func(s Start) time.Time { return s.first("action begins", "sandbox") }},
	{"sandbox: the runtime makes it", func(s Start) time.Time { return s.first("action ended", "sandbox") }},
	{"pleg, decision: the container begins", func(s Start) time.Time { return s.first("action begins", "start") }},
	{"container: the runtime makes and starts it", func(s Start) time.Time { return s.first("action ended", "start") }},
	{"pleg, status: the write of Ready arrives", func(s Start) time.Time { return s.Asked }},
	{"API server: the write is answered", func(s Start) time.Time { return s.Answered }},
	{"watch: the client knows", func(s Start) time.Time { return s.Seen }},
}

// first is when a message came first, for an action of a kind if one is given.
func (s Start) first(msg, kind string) time.Time {
	for _, l := range s.Lines {
		if l.UID == s.UID && l.Msg == msg && (kind == "" || l.Action == kind || strings.HasPrefix(l.Action, kind+" ") || strings.HasPrefix(l.Action, kind+"/")) {
			return l.Time
		}
	}
	return time.Time{}
}

// Stage is one stage of pod starts, in seconds.
type Stage struct {
	Name  string `json:"name"`
	Times Series `json:"times"`
}

// Budget parts pod starts into stages that follow each other without a gap. A
// start with a moment that nobody noted is an error. A stage that ended before
// the one ahead of it, because both went on beside each other, counts as 0, and
// the next begins where the later of both ended.
func Budget(starts []Start) ([]Stage, error) {
	list := make([]Stage, len(stages)+1)
	for i := range stages {
		list[i].Name = stages[i].name
	}
	list[len(stages)].Name = "in all"
	for _, s := range starts {
		at := s.Sent
		for i := range stages {
			end := stages[i].end(s)
			if end.IsZero() {
				return nil, fmt.Errorf("pod %s: nobody noted the end of %q", s.UID, stages[i].name)
			}
			if end.Before(at) {
				end = at
			}
			list[i].Times = append(list[i].Times, end.Sub(at).Seconds())
			at = end
		}
		list[len(stages)].Times = append(list[len(stages)].Times, at.Sub(s.Sent).Seconds())
	}
	return list, nil
}

// BudgetTable shows stages in milliseconds.
func BudgetTable(list []Stage) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "p50\tp90\t  ")
	for _, s := range list {
		fmt.Fprintf(w, "%.1f\t%.1f\t  %s\n", 1000*s.Times.Quantile(.5), 1000*s.Times.Quantile(.9), s.Name)
	}
	_ = w.Flush() // into memory
	return b.String()
}
