// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	nodeutil "k8s.io/component-helpers/node/util"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// node interprets the flags that have no field.
func (l *loader) node(t *target) Node {
	n := t.node
	n.Name = l.nodeName(t.raw.hostnameOverride)
	n.HostnameOverridden = t.raw.hostnameOverride != ""
	n.IPs = l.nodeIPs(t.raw.nodeIP, t.raw.cloudProvider)
	switch t.raw.cloudProvider {
	case "":
	case "external":
		n.ExternalCloudProvider = true
	default:
		l.problems = append(l.problems, flagProblem("cloud-provider",
			`is %q; must be "external" or empty, because no cloud provider is built in`, clip(t.raw.cloudProvider)))
	}
	l.labels(n.Labels)
	for _, p := range []*string{
		&n.KubeConfig, &n.BootstrapKubeConfig, &n.ImageCredentialProviderConfig,
		&n.ImageCredentialProviderBinDir, &n.LockFile, &n.MounterPath,
	} {
		*p = l.absOrEmpty(*p)
	}
	for _, dir := range []struct {
		flag string
		p    *string
	}{{"root-dir", &n.RootDir}, {"cert-dir", &n.CertDir}} {
		if *dir.p == "" {
			l.problems = append(l.problems, flagProblem(dir.flag, "must not be empty"))
			continue
		}
		*dir.p = l.abs(*dir.p)
	}
	if n.RootDir == "/" {
		l.problems = append(l.problems, flagProblem("root-dir", "must not be the root of the file system"))
	}
	if n.ExitOnLockContention && n.LockFile == "" {
		l.problems = append(l.problems, flagProblem("exit-on-lock-contention", "needs --lock-file"))
	}
	if len(n.Labels) == 0 {
		n.Labels = nil
	}
	return n
}

// nodeName is the host name or its override, trimmed and in lower case.
func (l *loader) nodeName(override string) string {
	name := strings.ToLower(strings.TrimSpace(cmp.Or(override, l.in.Hostname)))
	if name == "" {
		l.problems = append(l.problems, flagProblem("hostname-override", "the node has no name: give one, or a host name to the machine"))
		return ""
	}
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		l.warnings = append(l.warnings, Warning{Kind: Doubtful, Source: l.origins.Of("--hostname-override"), Name: "--hostname-override",
			Message: "the API server will not accept " + describe(name) + " as the name of a node: " + errs[0]})
	}
	return name
}

// nodeIPs parses --node-ip. The kubelet drops what is not an address and goes
// on with another one; here it is an error.
func (l *loader) nodeIPs(arg, cloudProvider string) []string {
	ips, bad, err := nodeutil.ParseNodeIPArgument(arg, cloudProvider)
	switch {
	case len(bad) > 0:
		l.problems = append(l.problems, flagProblem("node-ip", "%s is not an IP address", describe(bad[0])))
		return nil
	case err != nil:
		l.problems = append(l.problems, flagProblem("node-ip", "is %s: %v", describe(arg), err))
		return nil
	}
	var out []string
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

// labels checks --node-labels: syntax, and that the API server will let a node
// set them on itself.
func (l *loader) labels(labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, msg := range validation.IsQualifiedName(key) {
			l.problems = append(l.problems, flagProblem("node-labels", "%s: %s", describe(key), msg))
		}
		for _, msg := range validation.IsValidLabelValue(labels[key]) {
			l.problems = append(l.problems, flagProblem("node-labels", "%s: value %s: %s", describe(key), describe(labels[key]), msg))
		}
		if isKubernetesLabel(key) && !kubeletapis.IsKubeletLabel(key) {
			l.problems = append(l.problems, flagProblem("node-labels",
				"%s: a node may not set this label; in kubernetes.io and k8s.io only the prefixes %s and the labels %s are open to it",
				describe(key), strings.Join(kubeletapis.KubeletLabelNamespaces(), ", "), strings.Join(kubeletapis.KubeletLabels(), ", ")))
		}
	}
}

// isKubernetesLabel reports whether the label is in a domain Kubernetes reserves.
func isKubernetesLabel(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(reserved string) bool {
		return domain == reserved || strings.HasSuffix(domain, "."+reserved)
	})
}

// cleanAbs reports whether p is an absolute path without "..", "//" and the like.
func cleanAbs(p string) bool { return path.IsAbs(p) && path.Clean(p) == p }
