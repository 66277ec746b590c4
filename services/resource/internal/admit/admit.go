// SPDX-License-Identifier: Apache-2.0

// Package admit judges whether a pod fits the node. It is pure: pods and node
// facts in, a decision with the kubelet's reason out.
package admit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Node is what a pod is judged against.
type Node struct {
	Name        string
	Labels      map[string]string
	Taints      []v1.Taint
	Allocatable v1.ResourceList
	// Sysctls a pod may set; nil refuses none.
	Sysctls *pod.SysctlAllowlist
	// StrictGroups: the runtime can leave out the groups an image adds
	// (supplementalGroupsPolicy Strict). AppArmor: the kernel enforces profiles.
	StrictGroups, AppArmor bool
	// Features are those that the node declares; nil refuses none.
	Features []string
	// Under pressure, new pods of lower classes are refused.
	MemoryPressure, DiskPressure, PIDPressure bool
}

// Rejection is why a pod does not fit; Reason goes into its status.
type Rejection struct {
	Reason, Message string
	// Short is all that is missing, where a resource is. Nothing else keeps a critical
	// pod away then.
	Short []Shortage
}

// Shortage is how much of a resource is missing: CPU in thousandths.
type Shortage struct {
	Name   v1.ResourceName
	Amount int64
}

// pressure: critical pods pass; under memory pressure alone, all but BestEffort
// pass, and those pass that tolerate it.
func pressure(p *v1.Pod, _ []*v1.Pod, node Node) *Rejection {
	if !node.MemoryPressure && !node.DiskPressure && !node.PIDPressure || pod.IsCritical(p) {
		return nil
	}
	var conditions []string
	for condition, under := range map[string]bool{
		string(v1.NodeMemoryPressure): node.MemoryPressure, string(v1.NodeDiskPressure): node.DiskPressure, string(v1.NodePIDPressure): node.PIDPressure,
	} {
		if under {
			conditions = append(conditions, condition)
		}
	}
	slices.Sort(conditions)
	if node.MemoryPressure && len(conditions) == 1 {
		taint := &v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if pod.QOS(p) != v1.PodQOSBestEffort || tolerates(p, taint) {
			return nil
		}
	}
	return refuse("Evicted", fmt.Sprintf("The node had condition: %v. ", conditions))
}

func refuse(reason, message string) *Rejection { return &Rejection{Reason: reason, Message: message} }

func sysctls(p *v1.Pod, _ []*v1.Pod, node Node) *Rejection {
	if node.Sysctls == nil {
		return nil
	}
	if err := node.Sysctls.Check(p); err != nil {
		return refuse("SysctlForbidden", err.Error())
	}
	return nil
}

func operatingSystem(p *v1.Pod, _ []*v1.Pod, _ Node) *Rejection {
	if os, ok := p.Labels[v1.LabelOSStable]; ok && os != string(v1.Linux) {
		return refuse("PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label")
	}
	if p.Spec.OS != nil && p.Spec.OS.Name != v1.Linux {
		return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
	}
	return nil
}

func groups(p *v1.Pod, _ []*v1.Pod, node Node) *Rejection {
	sc := p.Spec.SecurityContext
	if node.StrictGroups || sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	return refuse("SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node")
}

// appArmor: a profile that cannot be enforced keeps a new pod away.
func appArmor(p *v1.Pod, _ []*v1.Pod, node Node) *Rejection {
	if p.Status.Phase != v1.PodPending && p.Status.Phase != "" || !wantsAppArmor(p) {
		return nil
	}
	cannot := func(why string) *Rejection { return refuse("AppArmor", "Cannot enforce AppArmor: "+why) }
	if !node.AppArmor {
		return cannot("AppArmor is not enabled on the host")
	}
	for _, c := range pod.Containers(p) {
		if profile, _, err := pod.AppArmorProfile(p, c); err != nil {
			return cannot(err.Error())
		} else if profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost && strings.TrimSpace(profile.GetLocalhostRef()) == "" {
			return cannot("the localhost profile of container " + c.Name + " has no name")
		}
	}
	return nil
}

// wantsAppArmor: the pod, or a container of it, names a profile that confines.
func wantsAppArmor(p *v1.Pod) bool {
	confines := func(profile *v1.AppArmorProfile) bool {
		return profile != nil && profile.Type != v1.AppArmorProfileTypeUnconfined
	}
	if p.Spec.SecurityContext != nil && confines(p.Spec.SecurityContext.AppArmorProfile) {
		return true
	}
	for _, c := range pod.Containers(p) {
		if c.SecurityContext != nil && confines(c.SecurityContext.AppArmorProfile) {
			return true
		}
	}
	for key, value := range p.Annotations {
		if strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && value != v1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}
	return false
}

// fit: requests of the admitted pods and of this one stay within allocatable.
// An extended resource the node does not have is no reason (it may be another
// owner's), as with the kubelet; huge pages of another size are.
func fit(p *v1.Pod, admitted []*v1.Pod, node Node) *Rejection {
	var short *Rejection
	missing := func(name v1.ResourceName, requested, used, capacity int64) {
		if short == nil { // the first gives its name
			short = refuse("OutOf"+string(name), outOf(name, requested, used, capacity))
		}
		short.Short = append(short.Short, Shortage{name, requested - (capacity - used)})
	}
	if n, ok := node.Allocatable[v1.ResourcePods]; ok && int64(len(admitted))+1 > n.Value() {
		missing(v1.ResourcePods, 1, int64(len(admitted)), n.Value())
	}
	used := v1.ResourceList{}
	for _, other := range admitted {
		for name, q := range pod.Requests(other) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	requests := pod.Requests(unclaimed(p))
	for _, name := range inOrder(requests) {
		want, has := requests[name], node.Allocatable[name]
		if _, known := node.Allocatable[name]; !known && pod.IsExtended(name) || want.IsZero() {
			continue
		}
		have := used[name]
		sum := have.DeepCopy()
		sum.Add(want)
		if sum.Cmp(has) > 0 {
			missing(name, amount(name, want), amount(name, have), amount(name, has))
		}
	}
	return short
}

// unclaimed is p without the extended resources that it has by a claim (KEP-5004): they are
// no devices of a plugin, whatever the node has, or had, of that name.
func unclaimed(p *v1.Pod) *v1.Pod {
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil {
		return p
	}
	p = p.DeepCopy()
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, m := range status.RequestMappings {
				if m.ContainerName == list[i].Name {
					delete(list[i].Resources.Requests, v1.ResourceName(m.ResourceName))
				}
			}
		}
	}
	return p
}

// Request is what a pod requests of a resource: CPU in thousandths. It is one of "pods".
func Request(p *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, pod.Requests(p)[name])
}

// inOrder: the node's own resources first, then the others by name.
func inOrder(list v1.ResourceList) []v1.ResourceName {
	own := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	names := slices.Collect(maps.Keys(list))
	slices.SortFunc(names, func(a, b v1.ResourceName) int {
		rank := func(n v1.ResourceName) int {
			if i := slices.Index(own, n); i >= 0 {
				return i
			}
			return len(own)
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	return names
}

func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func outOf(name v1.ResourceName, requested, used, capacity int64) string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity)
}

// NodeAffinity is why a pod is rejected whose labels of the node are not this node's.
const NodeAffinity = "NodeAffinity"

// general: node affinity, node name, host ports.
func general(p *v1.Pod, admitted []*v1.Pod, node Node) *Rejection {
	object := &v1.Node{}
	object.Name, object.Labels = node.Name, node.Labels
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(object); err != nil || !ok {
		return failed(NodeAffinity, "node(s) didn't match Pod's node affinity/selector")
	}
	if p.Spec.NodeName != "" && p.Spec.NodeName != node.Name {
		return failed("NodeName", fmt.Sprintf("the pod is for node %s", p.Spec.NodeName))
	}
	if port, other := conflict(p, admitted); other != nil {
		return failed("NodePorts", fmt.Sprintf("host port %d/%s is taken by pod %s/%s", port.port, port.protocol, other.Namespace, other.Name))
	}
	return nil
}

func failed(predicate, why string) *Rejection {
	return refuse(predicate, fmt.Sprintf("Predicate %s failed: %s", predicate, why))
}

type hostPort struct {
	protocol v1.Protocol
	ip       string
	port     int32
}

func hostPorts(p *v1.Pod) []hostPort {
	var ports []hostPort
	for kind, c := range pod.Containers(p) {
		if kind == pod.Init || kind == pod.Ephemeral {
			continue
		}
		for _, port := range c.Ports {
			if port.HostPort <= 0 {
				continue
			}
			ports = append(ports, hostPort{cmp.Or(port.Protocol, v1.ProtocolTCP), cmp.Or(port.HostIP, "0.0.0.0"), port.HostPort})
		}
	}
	return ports
}

// conflict finds a host port that p asks for, and the pod that has it.
func conflict(p *v1.Pod, admitted []*v1.Pod) (hostPort, *v1.Pod) {
	wanted := hostPorts(p)
	if len(wanted) == 0 {
		return hostPort{}, nil
	}
	for _, other := range admitted {
		for _, have := range hostPorts(other) {
			if i := slices.IndexFunc(wanted, have.conflicts); i >= 0 {
				return wanted[i], other
			}
		}
	}
	return hostPort{}, nil
}

// conflicts is the scheduler's rule, whose choice would be refused again and again otherwise:
// 0.0.0.0 is every address, "::" is one like others.
func (h hostPort) conflicts(o hostPort) bool {
	anywhere := func(ip string) bool { return ip == "0.0.0.0" }
	return h.port == o.port && h.protocol == o.protocol && (h.ip == o.ip || anywhere(h.ip) || anywhere(o.ip))
}

// taints: only NoExecute counts here, and static pods are exempt.
func taints(p *v1.Pod, _ []*v1.Pod, node Node) *Rejection {
	if pod.IsStatic(p) {
		return nil
	}
	for i := range node.Taints {
		t := &node.Taints[i]
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		if !tolerates(p, t) {
			return failed("TaintToleration", fmt.Sprintf("the pod does not tolerate the node's taint %s", t.ToString()))
		}
	}
	return nil
}

func tolerates(p *v1.Pod, taint *v1.Taint) bool {
	return v1helper.TolerationsTolerateTaint(klog.Logger{}, p.Spec.Tolerations, taint, false)
}
