// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
)

// anyOrder holds a plan against what it must not depend on: in which order a record
// lists the containers, and in which order actions end.
func (w *world) anyOrder(in Input, plan Plan) error {
	other := in
	other.Observed.Containers = shuffled(in.Observed.Containers, w.order)
	if err := same(plan, Step(other)); err != nil {
		return fmt.Errorf("the containers in another order: %w", err)
	}
	keys := slices.Sorted(maps.Keys(in.Flights))
	if len(keys) < 2 {
		return nil
	}
	w.order.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	first, second := in.Flights[keys[0]].Action, in.Flights[keys[1]].Action
	if surely(first, second) || surely(second, first) {
		return nil
	}
	results := []Result{w.result(first), w.result(second)}
	ended := in
	ended.Flights = maps.Clone(in.Flights)
	delete(ended.Flights, keys[0])
	delete(ended.Flights, keys[1])
	after := func(a, b Action, ra, rb Result) Plan {
		next := ended
		next.Facts, _ = Apply(in.Facts, in.UID, a, ra, in.Now)
		next.Facts, _ = Apply(next.Facts, in.UID, b, rb, in.Now)
		return Step(next)
	}
	if err := same(after(first, second, results[0], results[1]), after(second, first, results[1], results[0])); err != nil {
		return fmt.Errorf("%s and %s end in another order: %w", first, second, err)
	}
	return nil
}

// surely reports whether the order of two ends matters on purpose: each start makes sure
// of the images of volumes again, also of one that was being pulled meanwhile.
func surely(a, b Action) bool { return a.Kind == Start && b.Volume != "" }

// result is how an action may end.
func (w *world) result(a Action) Result {
	switch w.order.IntN(4) {
	case 0:
		return Result{Failed: &Failed{Reason: "Error", Message: "chance"}}
	case 1:
		return Result{Failed: &Failed{Message: "away", Away: true}}
	}
	r := Result{ID: "new-" + string(a.Key()), Ref: "ref", Fingerprint: 1}
	if a.Kind == Admit {
		r.Admission = &Answer{Decision: Admitted}
	}
	return r
}

// shuffled mixes the containers; the instances of each stay in their order, newest first.
func shuffled(all []Instance, r *rand.Rand) []Instance {
	of := map[string][]Instance{}
	names := make([]string, 0, len(all))
	for _, o := range all {
		of[o.Name] = append(of[o.Name], o)
		names = append(names, o.Name)
	}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	mixed := make([]Instance, 0, len(all))
	for _, name := range names {
		mixed, of[name] = append(mixed, of[name][0]), of[name][1:]
	}
	return mixed
}

// same compares two plans; their actions and events are sets.
func same(a, b Plan) error {
	for _, p := range []*Plan{&a, &b} {
		p.Start, p.Events = slices.Clone(p.Start), slices.Clone(p.Events)
		slices.SortFunc(p.Start, func(x, y Action) int { return cmp.Compare(x.String(), y.String()) })
		slices.SortFunc(p.Events, func(x, y Event) int { return cmp.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
	}
	if !reflect.DeepEqual(a, b) {
		return fmt.Errorf("two plans\n%s\n%+v\nand\n%s\n%+v", transcript(a, epoch, epoch), a.Facts, transcript(b, epoch, epoch), b.Facts)
	}
	return nil
}

// judging holds that judging the containers of a pod changes nothing that is known.
func judging(in Input) error {
	v := view{in: in, f: in.Facts.clone(), pod: in.pod()}
	if v.pod == nil {
		return nil
	}
	before := v.f.clone()
	for _, active := range append([]*Sandbox{nil}, newestOf(in.Observed.Sandboxes)...) {
		all := v.judge(active)
		if again := v.judge(active); !reflect.DeepEqual(all, again) || !reflect.DeepEqual(before, v.f) {
			return fmt.Errorf("judged twice: %+v, then %+v; the facts %+v, then %+v", all, again, before, v.f)
		}
	}
	return nil
}

func newestOf(all []Sandbox) (newest []*Sandbox) {
	if len(all) > 0 {
		newest = append(newest, &all[0])
	}
	return newest
}
