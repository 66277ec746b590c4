// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Render returns the status of a pod. It is total: every input has a status, and what is
// missing in the input is taken from the previous status or left out. Timestamps are
// cut to seconds, as the API server keeps them.
//
// A terminal phase is rendered only once no container can be running any more (see
// Lifecycle), so that a client that waits for it may reuse the pod's resources.
//
// For a static pod the previous status is that of its mirror pod. The caller must not
// pass one of another version of the static pod (compare the config hash), or its
// terminal phase would stick to the new one.
func Render(in Input) v1.PodStatus {
	r := &renderer{Input: in, rec: newRecord(in.Observed)}
	r.Facts.Lifecycle = cmp.Or(r.Facts.Lifecycle, Syncing)
	if r.Facts.Lifecycle == Syncing {
		r.rec.interrupted(r.Facts.Containers)
	}
	switch {
	case in.Old != nil:
		r.old = *in.Old.DeepCopy()
	default:
		r.old = *in.Pod.Status.DeepCopy()
	}
	if r.begunAnew() {
		r.beginAnew()
	}
	var out v1.PodStatus
	r.keep(&out)
	if r.Facts.Lifecycle == Rejected || (r.Facts.Verdict != nil && r.Facts.Verdict.Kind == VerdictRejected) {
		r.rejected(&out)
	} else {
		r.containers(&out)
		r.addresses(&out)
		r.phase(&out)
		r.podResources(&out)
		r.conditions(&out)
	}
	normalize(r.Pod, &out)
	return out
}

// keep sets what hardly ever changes and what the node does not own.
func (r *renderer) keep(out *v1.PodStatus) {
	out.QOSClass = pod.QOS(r.Pod)
	out.ObservedGeneration = max(r.Pod.Generation, r.old.ObservedGeneration)
	out.NominatedNodeName = r.old.NominatedNodeName
	out.ResourceClaimStatuses = r.old.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = r.old.ExtendedResourceClaimStatus
	out.NodeAllocatableResourceClaimStatuses = r.old.NodeAllocatableResourceClaimStatuses
	start := r.Facts.StartTime
	if start.IsZero() {
		start = r.Now
	}
	out.StartTime = &metav1.Time{Time: start}
	if r.old.StartTime != nil && !r.old.StartTime.IsZero() {
		out.StartTime = r.old.StartTime
	}
}

// rejected renders a pod that was refused at admission: nothing of it ever ran, and no
// condition is the node's, as with a kubelet.
func (r *renderer) rejected(out *v1.PodStatus) {
	out.Phase = v1.PodFailed
	if v := r.Facts.Verdict; v != nil {
		out.Reason, out.Message = v.Reason, prefixRejected+v.Message
	} else {
		out.Reason, out.Message = r.old.Reason, r.old.Message
	}
	if pod.IsTerminalPhase(r.old.Phase) && !r.refusedBefore() {
		out.Phase, out.Reason, out.Message = r.old.Phase, r.old.Reason, r.old.Message
	}
	for _, c := range r.old.Conditions {
		if !OwnedByNode(c.Type) {
			out.Conditions = append(out.Conditions, c)
		}
	}
}

// addresses sets hostIPs and podIPs. Addresses of a pod whose sandbox is gone are kept;
// those of a pod on the host's network are the node's and never change once set.
func (r *renderer) addresses(out *v1.PodStatus) {
	out.HostIP, out.HostIPs = r.old.HostIP, r.old.HostIPs
	hosts := parseIPs(r.Node.HostIPs)
	if len(hosts) > 2 {
		hosts = hosts[:2]
	}
	if len(hosts) > 0 {
		out.HostIP, out.HostIPs = hosts[0].String(), nil
		for _, ip := range hosts {
			out.HostIPs = append(out.HostIPs, v1.HostIP{IP: ip.String()})
		}
	}
	if r.Pod.Spec.HostNetwork {
		r.hostNetworkIPs(out, hosts)
		return
	}
	ips, anyReady := r.rec.ips()
	if len(ips) == 0 && !anyReady {
		out.PodIP, out.PodIPs = r.old.PodIP, r.old.PodIPs
		return
	}
	for _, ip := range SortIPs(ips, r.Node.HostIPs) {
		out.PodIPs = append(out.PodIPs, v1.PodIP{IP: ip})
	}
	if len(out.PodIPs) > 0 {
		out.PodIP = out.PodIPs[0].IP
	}
}

func (r *renderer) hostNetworkIPs(out *v1.PodStatus, hosts []netip.Addr) {
	out.PodIP, out.PodIPs = r.old.PodIP, slices.Clone(r.old.PodIPs)
	if out.PodIP == "" && len(hosts) > 0 {
		out.PodIP = hosts[0].String()
		out.PodIPs = []v1.PodIP{{IP: out.PodIP}}
	}
	if len(hosts) == 2 && len(out.PodIPs) == 1 {
		first, err := netip.ParseAddr(out.PodIPs[0].IP)
		if err == nil && first.Is4() != hosts[1].Is4() {
			out.PodIPs = append(out.PodIPs, v1.PodIP{IP: hosts[1].String()})
		}
	}
}

// SortIPs picks from the addresses a runtime reports the first of the node's primary
// family and the first of the other one, in that order: the pod's IPs. Without a
// node address the primary family is IPv4.
func SortIPs(ips, hostIPs []string) []string {
	primary4 := true
	if hosts := parseIPs(hostIPs); len(hosts) > 0 {
		primary4 = hosts[0].Is4()
	}
	var out []string
	addrs := parseIPs(ips)
	for _, want4 := range []bool{primary4, !primary4} {
		if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == want4 }); i >= 0 {
			out = append(out, addrs[i].String())
		}
	}
	return out
}

func parseIPs(ips []string) []netip.Addr {
	var out []netip.Addr
	for _, s := range ips {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}
