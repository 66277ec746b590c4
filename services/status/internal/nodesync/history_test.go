// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"strings"
	"testing"
	"time"
)

// TestVersionsWentBack: after a restore of etcd the Node has lower versions than the one
// that config lists still. What is written then is written once, a cordon of before is
// not seen again and again, and one of after is seen.
func TestVersionsWentBack(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		told := func(reason string) int { return strings.Count(r.news(), reason) }
		before := r.cluster.Node("n1")
		before.ResourceVersion, before.Spec.Unschedulable = "9000000", true
		r.change(func(f *Facts) { f.Node, f.Epoch = before, "a" })
		r.pass(calm)
		r.change(func(f *Facts) { f.Input.Port = 10251 }) // something to write
		r.pass(time.Minute)
		if n := len(r.cluster.Requests("patch", "nodes/status")); n != 1 {
			t.Errorf("%d patches in a minute", n)
		}
		if got := told("NodeSchedulable"); got != 1 || told("NodeNotSchedulable") != 1 {
			t.Errorf("told %d times: %s", got, r.news())
		}
		after := r.cluster.Node("n1")
		after.Spec.Unschedulable = true
		after = r.cluster.PutNode("n1", after)
		r.change(func(f *Facts) { f.Node = after })
		r.pass(calm)
		if got := told("NodeNotSchedulable"); got != 2 {
			t.Errorf("a cordon after the restore is not told: %s", r.news())
		}
	})
}

// TestConfigStartsWithItsDisk: what config lists of the Node at its start is older than
// what is known, which is no restore.
func TestConfigStartsWithItsDisk(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		old := r.cluster.Node("n1")
		now := r.cluster.Node("n1")
		now.Spec.Unschedulable = true
		now = r.cluster.PutNode("n1", now)
		for _, listed := range []struct {
			epoch string
			old   bool
		}{{"a", true}, {"a", false}, {"b", true}, {"b", false}} {
			r.change(func(f *Facts) {
				f.Epoch, f.Node = listed.epoch, now
				if listed.old {
					f.Node = old
				}
			})
			r.pass(calm)
		}
		if got := strings.Count(r.news(), "Schedulable"); got != 1 || len(r.cluster.Requests("patch", "")) != 0 {
			t.Errorf("happened: %s", r.news())
		}
	})
}
