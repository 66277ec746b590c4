// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// debt is the room that a critical pod waits for: pods that were there before it end to
// make it.
type debt struct {
	pod *v1.Pod
	// seen: config.pods had the pod.
	seen bool
}

// debts are in the order in which they were made. A kubelet waits for the victims before
// it looks at the next pod; here others are judged meanwhile, as if those that wait were
// admitted.
type debts []debt

// owe notes that a pod waits; one that did already keeps its place.
func (d *debts) owe(p *v1.Pod) {
	if i := d.index(string(p.UID)); i >= 0 {
		(*d)[i].pod = p
		return
	}
	*d = append(*d, debt{pod: p})
}

// settle forgets that a pod waits.
func (d *debts) settle(uid string) {
	if i := d.index(uid); i >= 0 {
		*d = slices.Delete(*d, i, i+1)
	}
}

// sweep forgets the pods that were desired, and are not any more.
func (d *debts) sweep(desired func(uid string) bool) {
	*d = slices.DeleteFunc(*d, func(one debt) bool { return one.seen && !desired(string(one.pod.UID)) })
	for i := range *d {
		(*d)[i].seen = (*d)[i].seen || desired(string((*d)[i].pod.UID))
	}
}

// before are the pods that get their room before p: those that wait longer, but for pods
// of a lower priority, which it may preempt.
func (d debts) before(p *v1.Pod) []*v1.Pod {
	if i := d.index(string(p.UID)); i >= 0 {
		d = d[:i]
	}
	var all []*v1.Pod
	for _, one := range d {
		if pod.Priority(one.pod) >= pod.Priority(p) {
			all = append(all, one.pod)
		}
	}
	return all
}

func (d debts) index(uid string) int {
	return slices.IndexFunc(d, func(one debt) bool { return string(one.pod.UID) == uid })
}
