// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"time"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
)

// preferences are the questions to plugins that the choice of a pod's devices has raised; nil
// for none. The pod's turn guards them. An answer that comes late is there when the pod
// comes again.
type preferences struct {
	calls map[string]*devices.Call[[]string] // by Question.Key
	// unanswered is how often there was no answer in time, by resource.
	unanswered map[string]int
}

// maxUnanswered is after how many answers that did not come in time a plugin is not asked any
// more for a pod, whose devices are chosen without its preference.
const maxUnanswered = 2

// answer is a plugin's answer to a question; it is open when the plugin is to be asked, or
// waited for.
func (p *preferences) answer(q devices.Question) (answer []string, open bool) {
	if p == nil {
		return nil, true
	}
	if call := p.calls[q.Key()]; call != nil && ended(call) && !lost(call) {
		return call.Answer, false
	}
	return nil, p.unanswered[q.Resource] < maxUnanswered
}

func ended(call *devices.Call[[]string]) bool {
	select {
	case <-call.Done:
		return true
	default:
		return false
	}
}

// lost reports whether a call has ended with the plugin, unanswered.
func lost(call *devices.Call[[]string]) bool {
	return ended(call) && errors.Is(call.Err, devices.ErrAway)
}

// asked are the questions about a pod; begin makes them.
func (d *podDevices) asked(uid string, begin bool) *preferences {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.preferences[uid] == nil && begin {
		d.preferences[uid] = &preferences{calls: map[string]*devices.Call[[]string]{}, unanswered: map[string]int{}}
	}
	return d.preferences[uid]
}

// question is the first question to a plugin that is open when a pod's devices are chosen
// beside what the others hold; nil for none. Callers have the pod's turn.
func (d *podDevices) question(r allocate.Request, now *settings) *devices.Question {
	if c := (&devices.Choice{Inventory: d.manager.Inventory()}); !c.Consults(r.Pod) || c.Waits(r.Pod) != nil {
		return nil
	}
	asked, first := d.asked(string(r.Pod.UID), false), (*devices.Question)(nil)
	r.Chosen = &resourcev1.Chosen{}
	now.pins.Decide(r, d.choice(r.Pod.UID, r.Held, func(q devices.Question) []string {
		answer, open := asked.answer(q)
		if open && first == nil {
			first = &q
		}
		return answer
	}))
	return first
}

// ask puts a question to a plugin, and waits for the answer as long as it is in time; callers
// have the pod's turn. What it answers later counts, too, if the question is the same then.
func (d *podDevices) ask(ctx context.Context, uid string, q devices.Question) error {
	asked := d.asked(uid, true)
	call := asked.calls[q.Key()]
	var late chan struct{}
	if call == nil || lost(call) {
		call = d.manager.Prefer(q)
		asked.calls[q.Key()], late = call, call.Late
	} else {
		late = make(chan struct{})
		defer time.AfterFunc(devicePatience, func() { close(late) }).Stop()
	}
	over := func() {
		<-call.Done
		call.Over()
	}
	select {
	case <-call.Done:
		call.Over()
		if call.Err != nil {
			d.log.Warn("device plugin has no preference", "resource", q.Resource, "error", call.Err.Error())
		}
		if lost(call) {
			asked.unanswered[q.Resource]++
		}
	case <-late:
		asked.unanswered[q.Resource]++
		go over()
	case <-ctx.Done():
		go over()
		return ctx.Err()
	}
	return nil
}
