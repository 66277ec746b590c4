// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// deprecations warns of each deprecated flag and gate that was used, once.
func deprecations(flags *Flags, c *Config) []Warning {
	var out []Warning
	for _, name := range flags.names() {
		if why := flagIndex()[name].deprecation(); why != "" {
			out = append(out, Warning{Deprecated, Source{Flag: name}, "--" + name, "is deprecated: " + why})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kubelet.FeatureGates)) {
		path := "featureGates[" + name + "]"
		switch gateIndex()[name].Stage {
		case StageGA, StageDeprecated:
			out = append(out, Warning{Deprecated, c.Origins.Of(path), path,
				fmt.Sprintf("this gate is %s and will be removed", gateIndex()[name].Stage)})
		}
	}
	return out
}

// doubts warns of settings that are legal but probably not meant.
func doubts(c *Config) []Warning {
	var out []Warning
	k := &c.Kubelet
	doubt := func(path, message string) {
		out = append(out, Warning{Doubtful, c.Origins.Of(path), path, message})
	}
	insecure := cliflag.InsecureTLSCipherNames()
	for i, suite := range k.TLSCipherSuites {
		if slices.Contains(insecure, suite) {
			doubt(fmt.Sprintf("tlsCipherSuites[%d]", i), suite+" is insecure")
		}
	}
	if k.TLSMinVersion == "VersionTLS13" && len(k.TLSCipherSuites) > 0 {
		doubt("tlsCipherSuites", "has no effect, because the cipher suites of TLS 1.3 cannot be chosen")
	}
	if k.KubeletCgroups != "" && !strings.HasPrefix(k.KubeletCgroups, k.KubeReservedCgroup) {
		doubt("kubeletCgroups", "is not inside kubeReservedCgroup, "+k.KubeReservedCgroup)
	}
	if c.Standalone() && k.Authentication.Anonymous.Enabled != nil && !*k.Authentication.Anonymous.Enabled && k.Authentication.X509.ClientCAFile == "" {
		doubt("authentication.anonymous.enabled", "without --kubeconfig, clientCAFile and anonymous access no client can use the API")
	}
	if c.Standalone() && c.Node.BootstrapKubeConfig != "" {
		out = append(out, Warning{Doubtful, c.Origins.Of("--bootstrap-kubeconfig"), "--bootstrap-kubeconfig",
			"has no effect without --kubeconfig: the node runs standalone"})
	}
	return out
}

// shortfall introduces the reason of a warning.
var shortfall = map[Level]string{Warned: "has no effect: ", Partly: "is honoured in part: "}

// supportOf compares the settings with the support tables. Settings at their default
// are not reported here; missing reports defaults that are not honoured. Fields that
// failed validation are not refused a second time.
func supportOf(flags *Flags, c *Config, baseline *kubeletv1beta1.KubeletConfiguration, invalid []*Problem) (warnings []Warning, refusals []*Problem) {
	judge := func(level Level, src Source, name, reason string) {
		switch level {
		case Warned, Partly:
			warnings = append(warnings, Warning{NotHonoured, src, name, shortfall[level] + reason})
		case Refused:
			for _, p := range invalid {
				if p.Field == name || isBelow(p.Field, name) {
					return
				}
			}
			refusals = append(refusals, &Problem{Source: src, Field: name, Detail: "is not supported: " + reason})
		}
	}
	for _, l := range leaves() {
		row, ok := fieldIndex()[l.path]
		if !ok || row.level == Honoured {
			continue
		}
		got, def := l.get(&c.Kubelet), l.get(baseline)
		if !got.IsValid() || (def.IsValid() && equality.Semantic.DeepEqual(got.Interface(), def.Interface())) {
			continue
		}
		if len(row.values) > 0 && allIn(got.Interface(), row.values) {
			continue
		}
		judge(row.level, c.Origins.Of(l.path), l.path, row.reason)
	}
	defaults := flagDefaults()
	for _, name := range flags.names() {
		row := flagIndex()[name]
		if row.field == "" && row.level != Honoured && flags.last(name) != defaults[name] {
			judge(row.level, Source{Flag: name}, "--"+name, row.reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kubelet.FeatureGates)) {
		if why := gateIgnored(name, c.Kubelet.FeatureGates[name]); why != "" {
			path := "featureGates[" + name + "]"
			judge(Warned, c.Origins.Of(path), path, why)
		}
	}
	return warnings, refusals
}

// allIn reports whether the value, or each of its elements when it is a list or a
// map, is among those listed.
func allIn(v any, listed []string) bool {
	var elems []string
	switch v := v.(type) {
	case []string:
		elems = v
	case map[string]string:
		elems = slices.Collect(maps.Values(v))
	default:
		elems = []string{fmt.Sprint(v)}
	}
	return !slices.ContainsFunc(elems, func(e string) bool { return !slices.Contains(listed, e) })
}
