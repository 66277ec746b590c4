// SPDX-License-Identifier: Apache-2.0

package admit_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
)

func read(t *testing.T, text string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if p.Name == "" {
		p.Namespace, p.Name = "ns", "p"
	}
	return p
}

func node(t *testing.T, edit func(*admit.Node)) admit.Node {
	t.Helper()
	sysctls, err := pod.NewSysctlAllowlist(pod.SafeSysctls("6.1.0")...)
	if err != nil {
		t.Fatal(err)
	}
	n := admit.Node{
		Name: "n1", Labels: map[string]string{"disk": "ssd", "kubernetes.io/os": "linux"}, Sysctls: sysctls,
		Allocatable: v1.ResourceList{
			"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "ephemeral-storage": resource.MustParse("10Gi"),
			"pods": resource.MustParse("3"), "example.com/gpu": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("4Mi"),
		},
	}
	if edit != nil {
		edit(&n)
	}
	return n
}

const (
	static   = "metadata: {annotations: {kubernetes.io/config.source: file}}\n"
	critical = "spec: {priority: 2000000000}\n"
)

// asks is a pod whose one container requests these.
func asks(list string) string {
	return "spec: {containers: [{name: c, resources: {requests: {" + list + "}}}]}"
}

// byClaim is a pod whose container c requests a device that a container has by a claim.
func byClaim(container string) string {
	return asks("example.com/gpu: 1") + "\nstatus: {extendedResourceClaimStatus: {resourceClaimName: x, requestMappings: [{containerName: " +
		container + ", resourceName: example.com/gpu, requestName: r}]}}"
}

func TestJudge(t *testing.T) {
	taint := func(effect v1.TaintEffect) func(*admit.Node) {
		return func(n *admit.Node) { n.Taints = []v1.Taint{{Key: "k", Value: "v", Effect: effect}} }
	}
	under := func(memory, disk, pid bool) func(*admit.Node) {
		return func(n *admit.Node) { n.MemoryPressure, n.DiskPressure, n.PIDPressure = memory, disk, pid }
	}
	for _, test := range []struct {
		name   string
		pod    string
		others []string
		node   func(*admit.Node)
		reason string // empty: admitted
		says   string
	}{
		{name: "nothing asked", pod: "spec: {}"},
		{name: "all that is left", pod: asks("cpu: 3, memory: 8Gi"), others: []string{asks("cpu: 1")}},

		// Pressure.
		{name: "memory pressure, BestEffort", pod: "spec: {}", node: under(true, false, false), reason: "Evicted", says: "The node had condition: [MemoryPressure]. "},
		{name: "memory pressure, Burstable", pod: asks("cpu: 1"), node: under(true, false, false)},
		{name: "memory pressure, tolerated", pod: "spec: {tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}]}", node: under(true, false, false)},
		{name: "memory pressure, critical", pod: critical, node: under(true, true, true)},
		{name: "memory pressure, static", pod: static, node: under(true, true, true)},
		{name: "disk pressure", pod: asks("cpu: 1"), node: under(false, true, false), reason: "Evicted", says: "[DiskPressure]"},
		{name: "pid pressure", pod: asks("cpu: 1"), node: under(false, false, true), reason: "Evicted", says: "[PIDPressure]"},
		{name: "two pressures", pod: asks("cpu: 1"), node: under(true, true, false), reason: "Evicted", says: "[DiskPressure MemoryPressure]"},

		// Sysctls.
		{name: "safe sysctl", pod: "spec: {securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: '1'}]}}"},
		{name: "unsafe sysctl", pod: "spec: {securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}}", reason: "SysctlForbidden", says: `forbidden sysctl: `},

		// Operating system.
		{name: "os label", pod: "metadata: {labels: {kubernetes.io/os: windows}}", reason: "PodOSSelectorNodeLabelDoesNotMatch"},
		{name: "os label linux", pod: "metadata: {labels: {kubernetes.io/os: linux}}"},
		{name: "os field", pod: "spec: {os: {name: windows}}", reason: "PodOSNotSupported"},
		{name: "os field linux", pod: "spec: {os: {name: linux}}"},

		// Groups and AppArmor.
		{name: "strict groups", pod: "spec: {securityContext: {supplementalGroupsPolicy: Strict}}", reason: "SupplementalGroupsPolicyNotSupported", says: "SupplementalGroupsPolicy=Strict is not supported in this node"},
		{name: "strict groups, known", pod: "spec: {securityContext: {supplementalGroupsPolicy: Strict}}", node: func(n *admit.Node) { n.StrictGroups = true }},
		{name: "merged groups", pod: "spec: {securityContext: {supplementalGroupsPolicy: Merge}}"},
		{name: "AppArmor", pod: "spec: {securityContext: {appArmorProfile: {type: RuntimeDefault}}}", reason: "AppArmor", says: "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		{name: "AppArmor of a container", pod: "spec: {containers: [{name: c, securityContext: {appArmorProfile: {type: RuntimeDefault}}}]}", reason: "AppArmor"},
		{name: "AppArmor by annotation", pod: "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/c: runtime/default}}", reason: "AppArmor"},
		{name: "AppArmor, unconfined", pod: "spec: {securityContext: {appArmorProfile: {type: Unconfined}}}"},
		{name: "AppArmor, enforced", pod: "spec: {securityContext: {appArmorProfile: {type: RuntimeDefault}}}", node: func(n *admit.Node) { n.AppArmor = true }},
		{name: "AppArmor, profile without a name", pod: "spec: {containers: [{name: c, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: ' '}}}]}",
			node: func(n *admit.Node) { n.AppArmor = true }, reason: "AppArmor", says: "Cannot enforce AppArmor: "},
		{name: "AppArmor, runs already", pod: "spec: {securityContext: {appArmorProfile: {type: RuntimeDefault}}}\nstatus: {phase: Running}"},

		// Fit.
		{name: "cpu", pod: asks("cpu: 3500m"), others: []string{asks("cpu: 1")}, reason: "OutOfcpu", says: "Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000"},
		{name: "memory", pod: asks("memory: 8Gi"), others: []string{asks("memory: 1Mi")}, reason: "OutOfmemory", says: "memory, requested: 8589934592, used: 1048576, capacity: 8589934592"},
		{name: "ephemeral storage", pod: asks("ephemeral-storage: 11Gi"), reason: "OutOfephemeral-storage"},
		{name: "huge pages", pod: asks("hugepages-2Mi: 6Mi"), reason: "OutOfhugepages-2Mi"},
		{name: "huge pages of a size the node does not have", pod: asks("hugepages-1Gi: 1Gi"), reason: "OutOfhugepages-1Gi",
			says: "requested: 1073741824, used: 0, capacity: 0"},
		{name: "no huge pages of a size the node does not have", pod: asks("hugepages-1Gi: 0")},
		{name: "a prefixed resource of Kubernetes, not the node's", pod: asks("kubernetes.io/batteries: 1"), reason: "OutOfkubernetes.io/batteries"},
		{name: "extended", pod: asks("example.com/gpu: 1"), others: []string{asks("example.com/gpu: 1")}, reason: "OutOfexample.com/gpu", says: "requested: 1, used: 1, capacity: 1"},
		{name: "extended, not the node's", pod: asks("other.com/fpga: 1")},
		{name: "extended, by a claim", pod: byClaim("c"), others: []string{asks("example.com/gpu: 1")}},
		{name: "extended, another container's claim", pod: byClaim("d"), others: []string{asks("example.com/gpu: 1")}, reason: "OutOfexample.com/gpu"},
		{name: "pods", pod: "spec: {}", others: []string{"", "", ""}, reason: "OutOfpods", says: "pods, requested: 1, used: 3, capacity: 3"},
		{name: "overhead counts", pod: "spec: {overhead: {cpu: 500m}, containers: [{name: c, resources: {requests: {cpu: 4}}}]}", reason: "OutOfcpu", says: "requested: 4500"},
		{name: "init containers count", pod: "spec: {initContainers: [{name: i, resources: {requests: {cpu: 5}}}]}", reason: "OutOfcpu"},
		{name: "limits count only as requests", pod: "spec: {containers: [{name: c, resources: {limits: {cpu: 9}, requests: {cpu: 1}}}]}"},
		{name: "first the own resources", pod: asks("ephemeral-storage: 11Gi, memory: 9Gi, cpu: 5, example.com/gpu: 2"), reason: "OutOfcpu"},
		{name: "memory before storage", pod: asks("ephemeral-storage: 11Gi, memory: 9Gi, example.com/gpu: 2"), reason: "OutOfmemory"},
		{name: "nothing asked of a full node", pod: "spec: {}", others: []string{asks("cpu: 4")}},

		// Affinity, name, ports.
		{name: "selector", pod: "spec: {nodeSelector: {disk: hdd}}", reason: "NodeAffinity", says: "Predicate NodeAffinity failed: "},
		{name: "selector that matches", pod: "spec: {nodeSelector: {disk: ssd}}"},
		{name: "selector of a static pod", pod: static + "spec: {nodeSelector: {disk: hdd}}", reason: "NodeAffinity"},
		{name: "affinity", pod: "spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: NotIn, values: [ssd]}]}]}}}}", reason: "NodeAffinity"},
		{name: "other node", pod: "spec: {nodeName: n2}", reason: "NodeName", says: "Predicate NodeName failed: the pod is for node n2"},
		{name: "this node", pod: "spec: {nodeName: n1}"},
		{name: "port", pod: ports("{hostPort: 80}"), others: []string{ports("{hostPort: 80, protocol: TCP}")}, reason: "NodePorts", says: "Predicate NodePorts failed: host port 80/TCP is taken by pod ns/p"},
		{name: "port, other protocol", pod: ports("{hostPort: 80, protocol: UDP}"), others: []string{ports("{hostPort: 80}")}},
		{name: "port, other address", pod: ports("{hostPort: 80, hostIP: 127.0.0.1}"), others: []string{ports("{hostPort: 80, hostIP: 127.0.0.2}")}},
		{name: "port, any address", pod: ports("{hostPort: 80, hostIP: 127.0.0.1}"), others: []string{ports("{hostPort: 80}")}, reason: "NodePorts"},
		{name: "port, the scheduler takes :: for an address", pod: ports("{hostPort: 80, hostIP: '::'}"), others: []string{ports("{hostPort: 80, hostIP: 127.0.0.1}")}},
		{name: "port, any address of v6 twice", pod: ports("{hostPort: 80, hostIP: '::'}"), others: []string{ports("{hostPort: 80, hostIP: '::'}")}, reason: "NodePorts"},
		{name: "container port alone", pod: ports("{containerPort: 80}"), others: []string{ports("{containerPort: 80}")}},
		{name: "port of a sidecar", pod: ports("{hostPort: 80}"), others: []string{"spec: {initContainers: [{name: i, restartPolicy: Always, ports: [{hostPort: 80}]}]}"}, reason: "NodePorts"},
		{name: "port of an init container", pod: ports("{hostPort: 80}"), others: []string{"spec: {initContainers: [{name: i, ports: [{hostPort: 80}]}]}"}},

		// Taints.
		{name: "NoExecute", pod: "spec: {}", node: taint(v1.TaintEffectNoExecute), reason: "TaintToleration", says: "k=v:NoExecute"},
		{name: "NoExecute tolerated", pod: "spec: {tolerations: [{key: k, operator: Exists, effect: NoExecute}]}", node: taint(v1.TaintEffectNoExecute)},
		{name: "NoExecute, static", pod: static, node: taint(v1.TaintEffectNoExecute)},
		{name: "NoSchedule", pod: "spec: {}", node: taint(v1.TaintEffectNoSchedule)},

		// Declared features.
		{name: "user namespace of the host's network", pod: "spec: {hostNetwork: true, hostUsers: false}", node: declares(), reason: "PodFeatureUnsupported",
			says: "Pod requires node features that are not available: UserNamespacesHostNetworkSupport"},
		{name: "features that are declared", pod: "spec: {hostNetwork: true, hostUsers: false}", node: declares("UserNamespacesHostNetworkSupport")},
		{name: "several features", pod: restartsAll("hostNetwork: true, hostUsers: false, "), node: declares("InPlacePodLevelResourcesVerticalScaling"), reason: "PodFeatureUnsupported",
			says: "not available: RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport"},
		{name: "no features needed", pod: "spec: {hostUsers: false}", node: declares()},
		{name: "no node declares features", pod: restartsAll("")},

		// Order: the first reason is given.
		{name: "pressure before sysctl", pod: "spec: {securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}}", node: under(false, true, false), reason: "Evicted"},
		{name: "sysctl before os", pod: "spec: {os: {name: windows}, securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}}", reason: "SysctlForbidden"},
		{name: "os before fit", pod: "spec: {os: {name: windows}, containers: [{name: c, resources: {requests: {cpu: 5}}}]}", reason: "PodOSNotSupported"},
		{name: "fit before affinity", pod: "spec: {nodeSelector: {disk: hdd}, containers: [{name: c, resources: {requests: {cpu: 5}}}]}", reason: "OutOfcpu"},
		{name: "affinity before name", pod: "spec: {nodeSelector: {disk: hdd}, nodeName: n2}", reason: "NodeAffinity"},
		{name: "name before taint", pod: "spec: {nodeName: n2}", node: taint(v1.TaintEffectNoExecute), reason: "NodeName"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var others []*v1.Pod
			for _, text := range test.others {
				others = append(others, read(t, text))
			}
			p := read(t, test.pod)
			before := p.DeepCopy()
			r := admit.Judge(p, others, node(t, test.node))
			switch {
			case r == nil && test.reason != "":
				t.Errorf("admitted, want %s", test.reason)
			case r != nil && r.Reason != test.reason:
				t.Errorf("%s: %s, want %q", r.Reason, r.Message, test.reason)
			case r != nil && !strings.Contains(r.Message, test.says):
				t.Errorf("says %q, want %q", r.Message, test.says)
			case r != nil && r.Message == "":
				t.Errorf("%s says nothing", r.Reason)
			}
			if before.String() != p.String() {
				t.Error("judging changed the pod")
			}
		})
	}
}

// declares is a node that declares these features.
func declares(features ...string) func(*admit.Node) {
	return func(n *admit.Node) { n.Features = append([]string{}, features...) }
}

func restartsAll(spec string) string {
	return "spec: {" + spec + "containers: [{name: c, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]}]}"
}

func TestUpdateNeeds(t *testing.T) {
	small, large := "spec: {resources: {limits: {cpu: 1}}}", "spec: {resources: {limits: {cpu: 2}}}"
	const needs = "Pod requires node features that are not available: InPlacePodLevelResourcesVerticalScaling"
	for name, tc := range map[string]struct {
		before, after string
		declared      []string
		want          string
	}{
		"not declared":         {small, large, []string{}, needs},
		"another is":           {small, large, []string{"ExtendWebSocketsToKubelet"}, needs},
		"declared":             {small, large, []string{"InPlacePodLevelResourcesVerticalScaling"}, ""},
		"nothing changes":      {small, small, []string{}, ""},
		"no node declares any": {small, large, nil, ""},
		"containers changed":   {"spec: {initContainers: [{name: a}]}", "spec: {}", []string{}, ""},
	} {
		if got, err := admit.UpdateNeeds(read(t, tc.before), read(t, tc.after), tc.declared); got != tc.want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func ports(list string) string { return "spec: {containers: [{name: c, ports: [" + list + "]}]}" }
