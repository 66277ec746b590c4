// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/sextant-node/sextant/pkg/pod"
)

const (
	controllerAttachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"
	nodeIDAnnotation           = "csi.volume.kubernetes.io/nodeid"
	providedIPAnnotation       = "alpha.kubernetes.io/provided-node-ip"
	uninitializedTaint         = "node.cloudprovider.kubernetes.io/uninitialized"
	betaOS, betaArch           = "beta.kubernetes.io/os", "beta.kubernetes.io/arch"
)

// reconciled are the labels that are put right on a Node that exists already; others
// of --node-labels are set at its creation only.
var reconciled = []string{
	v1.LabelHostname, v1.LabelTopologyZone, v1.LabelTopologyRegion,
	v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
	v1.LabelInstanceTypeStable, v1.LabelInstanceType,
	v1.LabelOSStable, v1.LabelArchStable, betaOS, betaArch,
}

// Registration is what a Node is made from.
type Registration struct {
	Name, OS, Arch string
	// Labels are those of --node-labels.
	Labels map[string]string
	// Taints are registerWithTaints.
	Taints     []v1.Taint
	ProviderID string
	// External: a cloud controller initialises the Node.
	External bool
	// NodeIPs are those of --node-ip.
	NodeIPs []string
	// ControllerAttach is enableControllerAttachDetach.
	ControllerAttach bool
	// Drivers of volumes; nil while it is not known which there are.
	Drivers *Drivers
	// Fresh: this machine remembers nothing of a Node. What one of the same name had
	// to offer beyond the machine itself is gone until it is offered again.
	Fresh bool
}

// Drivers is what the registered CSI drivers know the node by.
type Drivers struct {
	// NodeIDs by driver.
	NodeIDs map[string]string
	// Topology are the segments of all drivers; they become labels.
	Topology map[string]string
}

// drive says what drivers know the node by. A label that is there with another value
// stays: who set it knows more than a driver.
func drive(n *v1.Node, d *Drivers) {
	if d == nil {
		return
	}
	text := ""
	if len(d.NodeIDs) > 0 {
		if data, err := json.Marshal(d.NodeIDs); err == nil { // a map of strings always marshals
			text = string(data)
		}
	}
	set(n, nodeIDAnnotation, text)
	for key, value := range d.Topology {
		if _, ok := n.Labels[key]; ok {
			continue
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[key] = value
	}
}

// Object is the Node to create, without its status.
func Object(r Registration) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Labels: labels(r), Annotations: map[string]string{}},
		Spec:       v1.NodeSpec{ProviderID: r.ProviderID, Taints: append([]v1.Taint(nil), r.Taints...)},
	}
	if r.External {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: uninitializedTaint, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	annotate(n, r)
	return n
}

func labels(r Registration) map[string]string {
	out := map[string]string{
		v1.LabelHostname: r.Name, v1.LabelOSStable: r.OS, v1.LabelArchStable: r.Arch, betaOS: r.OS, betaArch: r.Arch,
	}
	maps.Copy(out, r.Labels)
	return out
}

func annotate(n *v1.Node, r Registration) {
	attach := ""
	if r.ControllerAttach {
		attach = "true"
	}
	set(n, controllerAttachAnnotation, attach)
	provide(n, r)
}

// provide tells a cloud controller which addresses were given.
func provide(n *v1.Node, r Registration) {
	provided := ""
	if given, _, err := parseNodeIPs(r.NodeIPs); r.External && err == nil && len(given) > 0 {
		texts := make([]string, len(given))
		for i, ip := range given {
			texts[i] = ip.String()
		}
		provided = strings.Join(texts, ",")
	}
	set(n, providedIPAnnotation, provided)
}

func set(n *v1.Node, key, value string) {
	if value == "" {
		delete(n.Annotations, key)
		return
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[key] = value
}

// Maintain is a Node with what has to be there always put right: the labels that
// schedulers and admission rely upon, and the address a cloud controller goes by.
func Maintain(existing *v1.Node, r Registration) *v1.Node {
	n := *existing
	n.Annotations = maps.Clone(existing.Annotations)
	provide(&n, r)
	if existing.Labels[v1.LabelOSStable] != r.OS || existing.Labels[v1.LabelArchStable] != r.Arch {
		n.Labels = map[string]string{}
		maps.Copy(n.Labels, existing.Labels)
		n.Labels[v1.LabelOSStable], n.Labels[v1.LabelArchStable] = r.OS, r.Arch
	}
	if r.Drivers != nil {
		n.Labels = maps.Clone(n.Labels)
		drive(&n, r.Drivers)
	}
	return &n
}

// Reconcile is an existing Node with the labels and annotations this node agent
// answers for put right, and with the extended resources of a former machine taken
// away; the rest of the status is rendered later.
func Reconcile(existing *v1.Node, r Registration) *v1.Node {
	n := existing.DeepCopy()
	want := labels(r)
	for _, key := range reconciled {
		if want[key] == "" || n.Labels[key] == want[key] {
			continue
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[key] = want[key]
	}
	annotate(n, r)
	if r.Fresh {
		withdraw(n)
	}
	return n
}

// withdraw leaves none of the extended resources.
func withdraw(n *v1.Node) {
	for name := range n.Status.Capacity {
		if !pod.IsExtended(name) {
			continue
		}
		n.Status.Capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
		if n.Status.Allocatable != nil {
			n.Status.Allocatable[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
}

// Patch is the strategic merge patch of the status subresource that makes one Node
// the other, nil when there is nothing to say. Metadata may change with it, the
// specification does not.
func Patch(old, want *v1.Node) ([]byte, error) {
	before, after := old.DeepCopy(), want.DeepCopy()
	after.Spec = before.Spec
	before.ManagedFields, after.ManagedFields = nil, nil
	// Addresses merge by type, which loses one of two internal addresses: they are
	// replaced as a whole.
	replace := !apiequality.Semantic.DeepEqual(before.Status.Addresses, after.Status.Addresses)
	addresses := after.Status.Addresses
	if replace {
		after.Status.Addresses = before.Status.Addresses
	}
	beforeData, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("node patch: %w", err)
	}
	afterData, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("node patch: %w", err)
	}
	body, err := strategicpatch.CreateTwoWayMergePatch(beforeData, afterData, v1.Node{})
	if err != nil {
		return nil, fmt.Errorf("node patch: %w", err)
	}
	if !replace {
		if string(body) == "{}" {
			return nil, nil
		}
		return body, nil
	}
	return withAddresses(body, addresses)
}

// News is what of a status, labels and annotations one Node has and the other has not, but
// for the times of heartbeats, as a patch like that of Patch; nil for nothing.
func News(old, want *v1.Node) ([]byte, error) {
	if Same(old.Status, want.Status) && maps.Equal(old.Labels, want.Labels) && maps.Equal(old.Annotations, want.Annotations) {
		return nil, nil
	}
	before, after := *old, *old
	before.Status, after.Status = *timeless(old.Status), *timeless(want.Status)
	after.Labels, after.Annotations = want.Labels, want.Annotations
	return Patch(&before, &after)
}

func withAddresses(body []byte, addresses []v1.NodeAddress) ([]byte, error) {
	patch := map[string]any{}
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, fmt.Errorf("node patch: %w", err)
	}
	status, ok := patch["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		patch["status"] = status
	}
	list := make([]any, 0, len(addresses)+1)
	for _, a := range addresses {
		list = append(list, a)
	}
	status["addresses"] = append(list, map[string]string{"$patch": "replace"})
	return json.Marshal(patch)
}
