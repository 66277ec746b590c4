// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// policyOptions maps an option of a resource manager's policy to the gate it
// needs, "" for a stable one.
type policyOptions map[string]string

var (
	cpuPolicyOptions = policyOptions{
		"full-pcpus-only":                  "",
		"strict-cpu-reservation":           "",
		"prefer-align-cpus-by-uncorecache": "",
		"distribute-cpus-across-numa":      "CPUManagerPolicyBetaOptions",
		"align-by-socket":                  "CPUManagerPolicyAlphaOptions",
		"distribute-cpus-across-cores":     "CPUManagerPolicyAlphaOptions",
	}
	topologyPolicyOptions = policyOptions{
		"prefer-closest-numa-nodes": "",
		"max-allowable-numa-nodes":  "",
	}
	// cpuOptionConflicts are options that exclude each other.
	cpuOptionConflicts = [][2]string{
		{"full-pcpus-only", "distribute-cpus-across-cores"},
		{"distribute-cpus-across-numa", "distribute-cpus-across-cores"},
		{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"},
		{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"},
	}
)

// minNUMANodes is the least value of max-allowable-numa-nodes: what the
// topology manager always copes with.
const minNUMANodes = 8

// managers checks the CPU, memory and topology managers.
func (v *validator) managers() {
	k := v.k
	oneOf(v, "cpuManagerPolicy", k.CPUManagerPolicy, "none", "static")
	oneOf(v, "memoryManagerPolicy", k.MemoryManagerPolicy, kubeletv1beta1.NoneMemoryManagerPolicy, kubeletv1beta1.StaticMemoryManagerPolicy)
	oneOf(v, "topologyManagerPolicy", k.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy,
		kubeletv1beta1.BestEffortTopologyManagerPolicy, kubeletv1beta1.RestrictedTopologyManagerPolicy, kubeletv1beta1.SingleNumaNodeTopologyManagerPolicy)
	oneOf(v, "topologyManagerScope", k.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope, kubeletv1beta1.PodTopologyManagerScope)
	v.positive("cpuManagerReconcilePeriod", k.CPUManagerReconcilePeriod.Duration)
	if k.CPUManagerPolicy == "static" && !v.reservesCPU() {
		v.invalid(at("cpuManagerPolicy"), k.CPUManagerPolicy, "requires CPU kept from pods by reservedSystemCPUs, systemReserved or kubeReserved")
	}

	if k.CPUManagerPolicy == "none" && len(k.CPUManagerPolicyOptions) > 0 {
		v.forbidden(at("cpuManagerPolicyOptions"), "the none policy has no options")
	}
	isTrue := map[string]bool{}
	v.options("cpuManagerPolicyOptions", k.CPUManagerPolicyOptions, cpuPolicyOptions, func(p *field.Path, name, value string) {
		b, err := strconv.ParseBool(value)
		if err != nil {
			v.invalid(p, value, "must be true or false")
		}
		isTrue[name] = b
	})
	for _, c := range cpuOptionConflicts {
		if isTrue[c[0]] && isTrue[c[1]] {
			v.invalid(at("cpuManagerPolicyOptions").Key(c[1]), "true", "cannot be combined with %s", c[0])
		}
	}
	if isTrue["align-by-socket"] && k.TopologyManagerPolicy == kubeletv1beta1.SingleNumaNodeTopologyManagerPolicy {
		v.invalid(at("cpuManagerPolicyOptions").Key("align-by-socket"), "true", "cannot be combined with topologyManagerPolicy: single-numa-node")
	}
	v.options("topologyManagerPolicyOptions", k.TopologyManagerPolicyOptions, topologyPolicyOptions, func(p *field.Path, name, value string) {
		if name == "max-allowable-numa-nodes" {
			if n, err := strconv.Atoi(value); err != nil || n < minNUMANodes {
				v.invalid(p, value, "must be a whole number of at least %d", minNUMANodes)
			}
			return
		}
		if _, err := strconv.ParseBool(value); err != nil {
			v.invalid(p, value, "must be true or false")
		}
	})
}

// options checks the names, gates and values of a policy's options.
func (v *validator) options(path string, set map[string]string, known policyOptions, check func(p *field.Path, name, value string)) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		p := at(path).Key(name)
		gate, ok := known[name]
		switch {
		case !ok:
			v.errs = append(v.errs, field.NotSupported(p, name, slices.Sorted(maps.Keys(known))))
		case gate != "" && !v.gates.enabled(gate):
			v.forbidden(p, "requires the feature gate %s", gate)
		default:
			check(p, name, set[name])
		}
	}
}

// reservesCPU reports whether any CPU is kept from pods.
func (v *validator) reservesCPU() bool {
	if v.k.ReservedSystemCPUs != "" {
		set, err := parseCPUs(v.k.ReservedSystemCPUs)
		return err != nil || set.Size() > 0
	}
	for _, m := range []map[string]string{v.k.SystemReserved, v.k.KubeReserved} {
		if q, err := parseQuantity(m["cpu"]); m["cpu"] != "" && (err != nil || q.Sign() > 0) {
			return true
		}
	}
	return false
}
