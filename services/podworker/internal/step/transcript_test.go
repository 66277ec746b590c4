// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"strings"
	"time"
)

// transcript writes a plan for people, relative to the start of a story.
func transcript(p Plan, start, now time.Time) string {
	var b strings.Builder
	since := func(t time.Time) string { return "t=" + t.Sub(start).String() }
	fmt.Fprintf(&b, "%s %s\n", since(now), p.Facts.State)
	for _, key := range p.Cancel {
		fmt.Fprintf(&b, "  cancel %s\n", key)
	}
	for _, a := range p.Start {
		fmt.Fprintf(&b, "  start %s", a)
		if a.WhenCalm() {
			fmt.Fprintf(&b, " until %s", since(a.CalmUntil))
		}
		b.WriteByte('\n')
	}
	if p.Refresh {
		b.WriteString("  refresh\n")
	}
	for _, e := range p.Events {
		kind, about := "Normal", ""
		if e.Warning {
			kind = "Warning"
		}
		if e.Container != "" {
			about = " " + e.Container
		}
		fmt.Fprintf(&b, "  event %s %s%s: %s\n", kind, e.Reason, about, e.Message)
	}
	for _, w := range p.Waits {
		fmt.Fprintf(&b, "  %s: %s", w.Container, w.Reason)
		if w.Message != "" {
			fmt.Fprintf(&b, ": %s", w.Message)
		}
		if !w.Retry.IsZero() {
			fmt.Fprintf(&b, " (next %s)", since(w.Retry))
		}
		b.WriteByte('\n')
	}
	if w := p.Wait; w != nil {
		fmt.Fprintf(&b, "  wait %s/%s", w.Owner, w.Step)
		if w.Message != "" {
			fmt.Fprintf(&b, ": %s", w.Message)
		}
		if !w.Retry.IsZero() {
			fmt.Fprintf(&b, " (next %s)", since(w.Retry))
		}
		fmt.Fprintf(&b, " since %s\n", since(w.Since))
	}
	if !p.WakeAt.IsZero() {
		fmt.Fprintf(&b, "  wake %s\n", since(p.WakeAt))
	}
	if p.Forget {
		b.WriteString("  forget\n")
	}
	return b.String()
}
