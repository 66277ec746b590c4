// SPDX-License-Identifier: Apache-2.0

package step

import (
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// TestDecides changes one fact at a time: what may not be forgotten by a kill has to
// be on the disk first, and nothing else has to.
func TestDecides(t *testing.T) {
	at := epoch
	facts := func() Facts {
		return Facts{
			State: Syncing, Admitted: &Admission{At: at}, Termination: &Termination{Grace: time.Minute, Deadline: at.Add(time.Minute)},
			Kills: map[string]Kill{"id": {Container: "c", Deadline: at.Add(time.Minute)}},
			Containers: map[string]Container{"c": {
				Instances: 1, Last: &Last{ID: "id", Exit: &Exit{}}, Size: &pod.Size{CPURequest: 1}, Crash: restart.Backoff{Updated: at},
			}},
			Pulls: map[Key]PullFacts{"pull/c": {Backoff: restart.Backoff{Updated: at}}},
		}
	}
	container := func(f *Facts, change func(*Container)) {
		c := f.Containers["c"]
		change(&c)
		f.Containers["c"] = c
	}
	kill := func(f *Facts, change func(*Kill)) {
		k := f.Kills["id"]
		change(&k)
		f.Kills["id"] = k
	}
	remove := []Action{{Kind: Remove, ID: "id", Container: "c"}}
	for _, tt := range []struct {
		name   string
		start  []Action
		change func(saved, f *Facts)
		want   bool
	}{
		{"nothing", nil, func(_, _ *Facts) {}, false},
		{"state", nil, func(_, f *Facts) { f.State = Terminating }, true},
		{"admission", nil, func(saved, _ *Facts) { saved.Admitted = nil }, true},
		{"another cgroup", nil, func(_, f *Facts) { f.Admitted.CgroupParent = "/other" }, true},
		{"rejection", nil, func(_, f *Facts) { f.Rejected = &Rejection{} }, true},
		{"end", nil, func(saved, _ *Facts) { saved.Termination = nil }, true},
		{"shorter grace", nil, func(_, f *Facts) { f.Termination.Grace = time.Second }, true},
		{"another cause", nil, func(_, f *Facts) { f.Termination.Cause = Deleted }, true},
		{"restart of all", nil, func(_, f *Facts) { f.RestartAll = &RestartAll{} }, true},
		{"restart of all is over", nil, func(saved, _ *Facts) { saved.RestartAll = &RestartAll{} }, true},
		{"kill", nil, func(saved, _ *Facts) { saved.Kills = nil }, true},
		{"kill of another", nil, func(_, f *Facts) { f.Kills = map[string]Kill{"other": {}} }, true},
		{"kill sooner", nil, func(_, f *Facts) { kill(f, func(k *Kill) { k.Deadline = at }) }, true},
		{"hook done", nil, func(_, f *Facts) { kill(f, func(k *Kill) { k.HookDone = true }) }, true},
		{"told", nil, func(_, f *Facts) { kill(f, func(k *Kill) { k.Told = true }) }, false},
		{"back-off", nil, func(_, f *Facts) { container(f, func(c *Container) { c.Crash.Updated = at.Add(1) }) }, true},
		{"back-off of a pull", nil, func(_, f *Facts) { f.Pulls["pull/c"] = PullFacts{Backoff: restart.Backoff{Updated: at.Add(1)}} }, true},
		{"size", nil, func(_, f *Facts) { container(f, func(c *Container) { c.Size = &pod.Size{CPURequest: 2} }) }, true},
		{"first size", nil, func(saved, _ *Facts) { container(saved, func(c *Container) { c.Size = nil }) }, false},
		{"instances", nil, func(saved, _ *Facts) { container(saved, func(c *Container) { c.Instances = 0 }) }, false},
		{"exit", nil, func(saved, _ *Facts) { container(saved, func(c *Container) { c.Last = &Last{ID: "id"} }) }, false},
		{"removed", remove, func(_, _ *Facts) {}, false},
		{"removed, exit not known", remove, func(saved, _ *Facts) { container(saved, func(c *Container) { c.Last = &Last{ID: "id"} }) }, true},
		{"removed, another known", remove, func(saved, _ *Facts) {
			container(saved, func(c *Container) { c.Last = &Last{ID: "former", Exit: &Exit{}} })
		}, true},
		{"an older one removed", []Action{{Kind: Remove, ID: "former", Container: "c"}}, func(saved, _ *Facts) {
			container(saved, func(c *Container) { c.Last = &Last{ID: "id"} })
		}, false},
	} {
		saved, plan := facts(), Plan{Facts: facts(), Start: tt.start}
		tt.change(&saved, &plan.Facts)
		if got := plan.Decides(saved); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
