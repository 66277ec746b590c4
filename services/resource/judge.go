// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/preempt"
)

// judge returns the answer to a pod that is not admitted now, or a question to a plugin, or
// neither; callers hold ledger.mu. As with a kubelet, what the resource managers say of a pod
// comes before what the node lacks: of two reasons to refuse it, theirs is given, and no pod
// is preempted for one that they would not have, or not yet.
func (a *admission) judge(r allocate.Request, now *settings, object *v1.Node) decision {
	node, missing := a.node.judged(r.Pod, now, object)
	if missing != nil {
		return decision{answer: missing}
	}
	if refused := admit.Early(r.Pod, node); refused != nil {
		return decision{answer: rejected(refused.Reason, refused.Message)}
	}
	d := a.fits(r.Pod, now, node, object == nil)
	switch {
	case d.answer == nil:
		return decision{question: a.devices.question(r, now)}
	case d.outdated:
		return d
	case d.answer.GetDecision() == resourcev1.Decision_DECISION_NOT_YET && len(d.victims) == 0:
		a.ledger.debts.owe(r.Pod)
		return d
	}
	if len(d.victims) > 0 { // the pod has what they leave, and those that are on their way out
		staying, _ := a.ledger.staying(string(r.Pod.UID))
		r.Held = beside(r, func(p *v1.Pod) bool { return slices.Contains(staying, p) && !slices.Contains(d.victims, p) })
	}
	chosen, count := a.choose(r, now)
	switch {
	case chosen.Decision == resourcev1.Decision_DECISION_REJECTED && len(a.givenBack(r, now)) == 0:
		count()
		return decision{answer: rejected(chosen.Reason, chosen.Message)}
	case d.answer.GetDecision() == resourcev1.Decision_DECISION_REJECTED && chosen.Decision == resourcev1.Decision_DECISION_ADMITTED:
		count()
	case len(d.victims) > 0 && chosen.Decision == resourcev1.Decision_DECISION_NOT_YET: // no victim helps before the plugin is there
		return decision{answer: notYet(chosen.Reason, chosen.Message)}
	case len(d.victims) > 0:
		a.ledger.debts.owe(r.Pod)
	}
	return d
}

// fits returns the answer to a pod that does not fit the node, or none. cached: the labels of
// the node may be older than those that the pod was placed for.
func (a *admission) fits(p *v1.Pod, now *settings, node admit.Node, cached bool) decision {
	a.devices.raise(p.UID, node.Allocatable)
	uid := string(p.UID)
	a.ledger.debts.sweep(a.claims.expects)
	owed := a.ledger.debts.before(p)
	r := admit.Late(p, a.ledger.others(uid), node)
	if r == nil && len(owed) > 0 { // once those are gone that make room for others
		staying, _ := a.ledger.staying(uid)
		r = admit.Late(p, append(staying, owed...), node)
	}
	switch {
	case r == nil:
		return decision{}
	case len(r.Short) > 0 && pod.IsCritical(p):
		return a.makeRoom(p, owed, node)
	default:
		outdated := r.Reason == admit.NodeAffinity && cached && !now.conf.Standalone()
		return decision{answer: rejected(r.Reason, r.Message), outdated: outdated}
	}
}

// choose has the allocators choose for a pod; count counts what came of it, which is done
// once for a pod: when it is admitted or refused. Callers hold ledger.mu.
func (a *admission) choose(r allocate.Request, now *settings) (answer allocate.Answer, count func()) {
	p := &pinner{pins: now.pins, devices: a.devices, now: a.clock}
	answer = allocate.Choose(append(slices.Clone(a.allocators), p), r)
	return answer, func() {
		if p.chose {
			a.pinned.count(p.tally, p.took)
		}
	}
}

// givenBack are the names of the pods that are over and still hold what a pod was refused
// for; callers hold ledger.mu.
func (a *admission) givenBack(r allocate.Request, now *settings) (names []string) {
	giving := a.ledger.giving()
	if len(giving) == 0 {
		return nil
	}
	r.Held = beside(r, func(p *v1.Pod) bool { return giving[p.UID] == nil })
	if without, _ := a.choose(r, now); without.Decision != resourcev1.Decision_DECISION_ADMITTED {
		return nil
	}
	for _, p := range giving {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	slices.Sort(names)
	return names
}

// beside are those of the other pods in a request that are to count.
func beside(r allocate.Request, counts func(*v1.Pod) bool) []allocate.Held {
	return slices.DeleteFunc(slices.Clone(r.Held), func(h allocate.Held) bool { return !counts(h.Pod) })
}

// makeRoom answers for a critical pod that only resources keep away: it waits for pods
// that are on their way out, if that is enough beside the pods that are owed room before
// it, and else for victims.
func (a *admission) makeRoom(p *v1.Pod, owed []*v1.Pod, node admit.Node) decision {
	staying, leaving := a.ledger.staying(string(p.UID))
	r := admit.Late(p, slices.Concat(staying, owed), node)
	if r == nil {
		return decision{answer: notYet("", "waiting for pods to end: "+strings.Join(leaving, ", "))}
	}
	victims, err := preempt.Victims(p, staying, r.Short)
	if err != nil {
		return decision{answer: rejected("UnexpectedAdmissionError",
			"Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: "+err.Error())}
	}
	for _, v := range victims {
		leaving = append(leaving, v.Namespace+"/"+v.Name)
	}
	return decision{answer: notYet("", "waiting for pods to end: "+strings.Join(leaving, ", ")), victims: victims, missing: r.Short[0].Name}
}

func rejected(reason, message string) *resourcev1.AdmitResponse {
	return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: reason, Message: message}
}
