// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"net/url"
	"strings"
	"time"

	"k8s.io/component-helpers/node/util/sysctl"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	netutils "k8s.io/utils/net"

	"github.com/sextant-node/sextant/pkg/pattern"
)

// pods checks where pods come from, how many there may be and how they run.
func (v *validator) pods() {
	k := v.k
	v.positive("syncFrequency", k.SyncFrequency.Duration)
	v.positive("fileCheckFrequency", k.FileCheckFrequency.Duration)
	v.positive("httpCheckFrequency", k.HTTPCheckFrequency.Duration)
	if k.StaticPodURL != "" {
		u, err := url.Parse(k.StaticPodURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			v.invalid(at("staticPodURL"), k.StaticPodURL, "must be an http or https URL")
		}
	}
	v.notNegative("maxPods", int64(k.MaxPods))
	v.notNegative("podsPerCore", int64(k.PodsPerCore))
	if k.RunOnce {
		v.invalid(at("runOnce"), true, "run-once mode no longer exists")
	}
	if k.PodCIDR != "" {
		for _, cidr := range strings.Split(k.PodCIDR, ",") {
			if _, _, err := netutils.ParseCIDRSloppy(strings.TrimSpace(cidr)); err != nil {
				v.invalid(at("podCIDR"), k.PodCIDR, "must be a CIDR, or an IPv4 and an IPv6 one separated by a comma")
				break
			}
		}
	}
	oneOf(v, "hairpinMode", k.HairpinMode, kubeletv1beta1.HairpinNone, kubeletv1beta1.HairpinVeth, kubeletv1beta1.PromiscuousBridge)
	oneOf(v, "configMapAndSecretChangeDetectionStrategy", k.ConfigMapAndSecretChangeDetectionStrategy,
		kubeletv1beta1.GetChangeDetectionStrategy, kubeletv1beta1.TTLCacheChangeDetectionStrategy, kubeletv1beta1.WatchChangeDetectionStrategy)
	v.between("iptablesMasqueradeBit", int64(*k.IPTablesMasqueradeBit), 0, 31)
	v.between("iptablesDropBit", int64(*k.IPTablesDropBit), 0, 31)
	v.crashLoopBackOff()
	v.sysctls()
	v.userNamespaces()
}

// crashLoopBackOff checks the longest back-off, which a gate guards.
func (v *validator) crashLoopBackOff() {
	p, longest := at("crashLoopBackOff.maxContainerRestartPeriod"), v.k.CrashLoopBackOff.MaxContainerRestartPeriod
	on := v.gates.enabled("KubeletCrashLoopBackOffMax")
	switch {
	case !on && longest != nil:
		v.forbidden(p, "requires the feature gate KubeletCrashLoopBackOffMax")
	case on && (longest.Duration < time.Second || longest.Duration >= maxCrashLoopBackOff+time.Millisecond):
		v.invalid(p, longest.Duration.String(), "must be between 1s and 300s")
	}
}

// sysctlPattern is a sysctl name, or the start of one followed by "*", with
// dots or slashes between the segments.
var sysctlPattern = pattern.Lazy(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`)

// maxSysctlLength is the longest name of a sysctl, from the pod API.
const maxSysctlLength = 253

// sysctls checks the unsafe sysctls pods may set: only those the kernel keeps
// per namespace.
func (v *validator) sysctls() {
	for i, s := range v.k.AllowedUnsafeSysctls {
		p := at("allowedUnsafeSysctls").Index(i)
		if len(s) > maxSysctlLength || !sysctlPattern().MatchString(s) {
			v.invalid(p, clip(s), "must be the name of a sysctl, or the start of one followed by *")
			continue
		}
		if ns, name, _ := sysctl.GetNamespace(s); ns == sysctl.UnknownNamespace {
			v.invalid(p, s, "%s is not known to be namespaced, so a pod would set it for the whole node", name)
		}
	}
}

// dns checks what pods' resolv.conf is made of.
func (v *validator) dns() {
	for i, server := range v.k.ClusterDNS {
		if netutils.ParseIPSloppy(server) == nil {
			v.invalid(at("clusterDNS").Index(i), server, "must be an IP address")
		}
	}
	if strings.ContainsAny(v.k.ClusterDomain, " \t\r\n") {
		v.invalid(at("clusterDomain"), v.k.ClusterDomain, "must be one domain name")
	}
}

// shutdown checks the grace periods of a node shutdown.
func (v *validator) shutdown() {
	k := v.k
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	on := v.gates.enabled("GracefulNodeShutdown")
	for _, p := range []struct {
		path string
		d    time.Duration
	}{{"shutdownGracePeriod", total}, {"shutdownGracePeriodCriticalPods", critical}} {
		switch {
		case !on && p.d > 0:
			v.forbidden(at(p.path), "requires the feature gate GracefulNodeShutdown")
		case on && (p.d < 0 || p.d > 0 && p.d < time.Second):
			v.invalid(at(p.path), p.d.String(), "must be zero or at least 1s")
		}
	}
	if on && critical > total {
		v.invalid(at("shutdownGracePeriodCriticalPods"), critical.String(), "must not be more than shutdownGracePeriod, which is %s", total)
	}
	byPriority := at("shutdownGracePeriodByPodPriority")
	if len(k.ShutdownGracePeriodByPodPriority) > 0 {
		switch {
		case !v.gates.enabled("GracefulNodeShutdownBasedOnPodPriority"):
			v.forbidden(byPriority, "requires the feature gate GracefulNodeShutdownBasedOnPodPriority")
		case total > 0 || critical > 0:
			v.forbidden(byPriority, "cannot be combined with shutdownGracePeriod and shutdownGracePeriodCriticalPods")
		}
	}
	for i, p := range k.ShutdownGracePeriodByPodPriority {
		if p.ShutdownGracePeriodSeconds < 0 {
			v.invalid(byPriority.Index(i).Child("shutdownGracePeriodSeconds"), p.ShutdownGracePeriodSeconds, "must not be negative")
		}
	}
}
