// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Decision says what happens after a container ended.
type Decision int

// The decisions.
const (
	// Stay: the container has run and is not run again.
	Stay Decision = iota
	// Again: the container is started again, once its back-off allows.
	Again
	// AllAgain: every container of the pod is stopped, removed and started again
	// (KEP-5307 rule action RestartAllContainers).
	AllAgain
)

// Exit is how an instance of a container ended.
type Exit struct {
	// Code is the exit code; 137 stands in where it is not known.
	Code int32
	// Ahead is true while the instance runs and is to be killed: its code is a guess, which
	// restartPolicyRules do not look at. The policies apply.
	Ahead bool
}

// Decide says what happens after the instance that ended last. exits holds the instances'
// ends, newest first; none means the container never ran, and it is started.
//
// Nothing is started again once the pod is being deleted. Otherwise the first matching
// restart rule of the container decides, then the container's own policy, then the
// pod's. An init container that succeeded stays; a sidecar always comes back; an
// ephemeral container never does.
func Decide(p *v1.Pod, c *v1.Container, exits ...Exit) Decision {
	if p.DeletionTimestamp != nil {
		return Stay
	}
	if len(exits) == 0 {
		return Again
	}
	_, kind := pod.FindContainer(p, c.Name)
	if kind == pod.Ephemeral {
		return Stay
	}
	last := exits[0]
	if rule := matchingRule(c, last); rule != nil && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
		return AllAgain
	}
	if kind == pod.Init && last.Code == 0 {
		return Stay
	}
	if byPolicy(p, c, last) {
		return Again
	}
	return Stay
}

// Restartable reports whether a container with that exit is started again while the pod
// is not being deleted. Unlike Decide it judges a successful init container by policy
// alone; it is what a pod's phase depends on.
func Restartable(p *v1.Pod, c *v1.Container, exit Exit) bool {
	if rule := matchingRule(c, exit); rule != nil && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
		return true
	}
	return byPolicy(p, c, exit)
}

// MayRestartAll reports whether a rule of the pod could restart all its containers.
func MayRestartAll(p *v1.Pod) bool {
	for kind, c := range pod.Containers(p) {
		if kind == pod.Ephemeral {
			continue
		}
		for i := range c.RestartPolicyRules {
			if c.RestartPolicyRules[i].Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

func byPolicy(p *v1.Pod, c *v1.Container, exit Exit) bool {
	if rule := matchingRule(c, exit); rule != nil && rule.Action == v1.ContainerRestartRuleActionRestart {
		return true
	}
	if c.RestartPolicy != nil {
		switch *c.RestartPolicy {
		case v1.ContainerRestartPolicyAlways:
			return true
		case v1.ContainerRestartPolicyOnFailure:
			return exit.Code != 0
		case v1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch p.Spec.RestartPolicy {
	case v1.RestartPolicyOnFailure:
		return exit.Code != 0
	case v1.RestartPolicyNever:
		return false
	}
	return true
}

// matchingRule is the first rule whose condition holds, nil when none does. Rules need
// a container-level policy to fall back on; without one they are not looked at.
func matchingRule(c *v1.Container, exit Exit) *v1.ContainerRestartRule {
	if c.RestartPolicy == nil || exit.Ahead {
		return nil
	}
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		if rule.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(rule.ExitCodes.Values, exit.Code)
		switch rule.ExitCodes.Operator {
		case v1.ContainerRestartRuleOnExitCodesOpIn:
			if listed {
				return rule
			}
		case v1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !listed {
				return rule
			}
		}
	}
	return nil
}
