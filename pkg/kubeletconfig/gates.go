// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// GateStage is the maturity of a feature gate.
type GateStage string

// The stages of a feature gate.
const (
	StageAlpha      GateStage = "alpha"
	StageBeta       GateStage = "beta"
	StageGA         GateStage = "GA"
	StageDeprecated GateStage = "deprecated"
)

// The two gates that switch whole stages.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// Gate describes a feature gate of kubelet v1.36.
type Gate struct {
	Name  string    `json:"name"`
	Stage GateStage `json:"stage"`
	// Default is the value of a gate that is not set.
	Default bool `json:"default"`
	// Locked gates cannot be changed from their default.
	Locked bool `json:"locked,omitempty"`
	// Node is set if the gate affects a node agent; the others belong to the control
	// plane and have no effect here.
	Node bool `json:"node,omitempty"`
	// Requires names gates that must be on for this one to be on.
	Requires []string `json:"requires,omitempty"`
}

// gateProps are the yes-or-no columns of gateTable.
type gateProps uint8

const (
	on gateProps = 1 << iota
	locked
	onNode
)

// gateRow is one line of gateTable.
type gateRow struct {
	name     string
	stage    GateStage
	props    gateProps
	requires string // space-separated
}

// gateIndex is gateTable by name.
var gateIndex = sync.OnceValue(func() map[string]Gate {
	m := make(map[string]Gate, len(gateTable))
	for _, r := range gateTable {
		m[r.name] = Gate{
			Name: r.name, Stage: r.stage,
			Default: r.props&on != 0, Locked: r.props&locked != 0, Node: r.props&onNode != 0,
			Requires: strings.Fields(r.requires),
		}
	}
	return m
})

// Gates returns every known feature gate, sorted by name.
func Gates() []Gate {
	all := slices.Collect(maps.Values(gateIndex()))
	slices.SortFunc(all, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// gates answers what is on under one featureGates map.
type gates map[string]bool

// gatesOf computes the explicit and implied settings of a featureGates map.
// AllAlpha and AllBeta set the gates of their stage that are not named
// themselves, whatever the order. Unknown names are dropped.
func gatesOf(set map[string]bool) gates {
	g := gates{}
	for name, gate := range gateIndex() {
		g[name] = gate.in(set)
	}
	return g
}

// in is whether the gate is on under a featureGates map.
func (gate Gate) in(set map[string]bool) bool {
	if v, ok := set[gate.Name]; ok {
		return v
	}
	if v, ok := set[stageGate(gate.Stage)]; ok && gate.Name != allAlpha && gate.Name != allBeta {
		return v
	}
	return gate.Default
}

// stageGate names the gate that switches all gates of a stage, "" for none.
func stageGate(s GateStage) string {
	switch s {
	case StageAlpha:
		return allAlpha
	case StageBeta:
		return allBeta
	default:
		return ""
	}
}

func (g gates) enabled(name string) bool { return g[name] }

// validateGates checks names, locked gates and what gates require of others.
func validateGates(set map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := gateIndex()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		gate, ok := known[name]
		switch {
		case !ok:
			errs = append(errs, field.Invalid(path.Key(name), set[name], "not a feature gate of Kubernetes 1.36"))
		case gate.Locked && set[name] != gate.Default:
			errs = append(errs, field.Invalid(path.Key(name), set[name],
				fmt.Sprintf("this %s gate is locked to %t", gate.Stage, gate.Default)))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	g := gatesOf(set)
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if !g[name] {
			continue
		}
		for _, need := range known[name].Requires {
			if !g[need] {
				errs = append(errs, field.Invalid(path.Key(name), true, "requires the feature gate "+need+", which is off"))
			}
		}
	}
	return errs
}
