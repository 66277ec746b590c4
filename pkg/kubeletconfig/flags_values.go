// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	netutils "k8s.io/utils/net"
)

// ipValue takes an IP address; an empty string leaves the default.
type ipValue struct{ p *string }

func (v ipValue) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}
func (v ipValue) Type() string { return "ip" }
func (v ipValue) Set(s string) error {
	if s == "" {
		return nil
	}
	if netutils.ParseIPSloppy(s) == nil {
		return fmt.Errorf("%q is not an IP address", s)
	}
	*v.p = s
	return nil
}

// taintsValue takes "key=value:effect,...", replacing what was there.
type taintsValue struct{ p *[]corev1.Taint }

func (v taintsValue) String() string {
	if v.p == nil {
		return ""
	}
	out := make([]string, 0, len(*v.p))
	for _, t := range *v.p {
		out = append(out, fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect))
	}
	return strings.Join(out, ",")
}
func (v taintsValue) Type() string { return "taints" }
func (v taintsValue) Set(s string) error {
	var taints []corev1.Taint
	for _, spec := range strings.Split(s, ",") {
		if s == "" {
			break
		}
		kv, effect, ok := strings.Cut(spec, ":")
		key, val, _ := strings.Cut(kv, "=")
		if !ok || key == "" || effect == "" || strings.ContainsAny(effect, ":") {
			return fmt.Errorf("%q is not of the form key=value:effect", spec)
		}
		taints = append(taints, corev1.Taint{Key: key, Value: val, Effect: corev1.TaintEffect(effect)})
	}
	*v.p = taints
	return nil
}

// reservedMemoryValue takes "numa:type=quantity,...;numa:..."; given again it adds to
// its former value.
type reservedMemoryValue struct {
	p   *[]kubeletv1beta1.MemoryReservation
	set bool
}

func (v *reservedMemoryValue) String() string {
	if v.p == nil {
		return ""
	}
	var nodes []string
	for _, r := range *v.p {
		var limits []string
		for name, q := range r.Limits {
			limits = append(limits, fmt.Sprintf("%s=%s", name, q.String()))
		}
		slices.Sort(limits)
		nodes = append(nodes, fmt.Sprintf("%d:%s", r.NumaNode, strings.Join(limits, ",")))
	}
	return strings.Join(nodes, ";")
}
func (v *reservedMemoryValue) Type() string { return "reserved-memory" }
func (v *reservedMemoryValue) Set(s string) error {
	if s == "" {
		return nil
	}
	var parsed []kubeletv1beta1.MemoryReservation
	for _, part := range strings.Split(s, ";") {
		r, err := parseReservation(part)
		if err != nil {
			return err
		}
		parsed = append(parsed, r)
	}
	if !v.set {
		*v.p, v.set = nil, true
	}
	*v.p = append(*v.p, parsed...)
	return nil
}

func parseReservation(s string) (kubeletv1beta1.MemoryReservation, error) {
	none := kubeletv1beta1.MemoryReservation{}
	numa, limits, ok := strings.Cut(s, ":")
	if !ok || strings.Contains(limits, ":") {
		return none, fmt.Errorf("%q is not of the form numa:type=quantity", s)
	}
	id, err := strconv.ParseInt(numa, 10, 32)
	if err != nil {
		return none, fmt.Errorf("%q is not the number of a NUMA node", numa)
	}
	r := kubeletv1beta1.MemoryReservation{NumaNode: int32(id), Limits: corev1.ResourceList{}}
	for _, limit := range strings.Split(limits, ",") {
		name, amount, ok := strings.Cut(limit, "=")
		if !ok {
			return none, fmt.Errorf("%q is not of the form type=quantity", limit)
		}
		q, err := parseQuantity(amount)
		if err != nil {
			return none, fmt.Errorf("%s: %w", name, err)
		}
		r.Limits[corev1.ResourceName(name)] = q
	}
	return r, nil
}

// versionValue is --version: true, false or raw. It calls itself a bool so that
// a command-line library that offers --version itself understands it.
type versionValue struct{ p *string }

func (v versionValue) String() string   { return strconv.FormatBool(v.p != nil && *v.p != "") }
func (v versionValue) Type() string     { return "bool" }
func (v versionValue) IsBoolFlag() bool { return true }
func (v versionValue) Set(s string) error {
	if s == "raw" {
		*v.p = "raw"
		return nil
	}
	yes, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is not true, false or raw", s)
	}
	*v.p = ""
	if yes {
		*v.p = "true"
	}
	return nil
}

// quantityValue checks a quantity before the value behind it parses it.
type quantityValue struct{ pflag.Value }

func (v quantityValue) Set(s string) error {
	if err := checkQuantity(s); err != nil {
		return err
	}
	return v.Value.Set(s)
}
