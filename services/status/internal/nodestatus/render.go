// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Render is the status of the Node. What is not known is as in the old one, and so is
// what others write (volumes attached, their conditions and resources).
func Render(in Input) v1.NodeStatus {
	out := *in.Old.DeepCopy()
	capacity(in, &out)
	info(in, &out)
	if in.Addresses != nil {
		out.Addresses = in.Addresses
	}
	if in.Port > 0 {
		out.DaemonEndpoints.KubeletEndpoint.Port = in.Port
	}
	if in.Images != nil {
		out.Images = images(in.Images, in.MaxImages)
	}
	if in.VolumesInUse != nil {
		out.VolumesInUse = in.VolumesInUse
	}
	if r := in.Runtime; r != nil && r.Asked {
		out.RuntimeHandlers = slices.Clone(r.Handlers)
		slices.SortFunc(out.RuntimeHandlers, func(a, b v1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
		out.Features = nil
		if r.SupplementalGroupsPolicy != nil {
			out.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: r.SupplementalGroupsPolicy}
		}
	}
	out.DeclaredFeatures = in.Features
	out.Conditions = conditions(in)
	return out
}

// capacity sets what resource says over what others have put there; huge pages are
// only ours.
func capacity(in Input, out *v1.NodeStatus) {
	r := in.Resources
	if r == nil {
		return
	}
	set := func(list *v1.ResourceList, ours v1.ResourceList) {
		merged := v1.ResourceList{}
		for name, q := range *list {
			if !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
				merged[name] = q
			}
		}
		maps.Copy(merged, ours)
		*list = merged
	}
	set(&out.Capacity, r.Capacity)
	set(&out.Allocatable, r.Allocatable)
	for name, q := range out.Capacity {
		_, ours := r.Allocatable[name]
		// All is allocatable of what others have put there, as with a kubelet: they change the capacity.
		if _, there := out.Allocatable[name]; !there || pod.IsExtended(name) && !ours {
			out.Allocatable[name] = q
		}
	}
	// What others take off the capacity is theirs to take off, as with a kubelet.
	maps.DeleteFunc(out.Allocatable, func(name v1.ResourceName, _ resource.Quantity) bool {
		_, there := out.Capacity[name]
		_, ours := r.Allocatable[name]
		return pod.IsExtended(name) && !there && !ours
	})
	// Nothing is allocatable that there is not.
	for name, q := range out.Allocatable {
		capacity, ok := out.Capacity[name]
		if !ok {
			capacity = resource.Quantity{Format: resource.DecimalSI}
			out.Capacity[name] = capacity
		}
		if q.Cmp(capacity) > 0 {
			out.Allocatable[name] = capacity
		}
	}
}

func info(in Input, out *v1.NodeStatus) {
	n := &out.NodeInfo
	n.KubeletVersion, n.KubeProxyVersion = KubeletVersion, ""
	if r := in.Resources; r != nil {
		n.MachineID, n.SystemUUID, n.BootID = r.MachineID, r.SystemUUID, r.BootID
		n.KernelVersion, n.OSImage = r.KernelVersion, r.OSImage
		n.OperatingSystem, n.Architecture = r.OperatingSystem, r.Architecture
		n.Swap = nil
		if r.SwapCapacity > 0 {
			n.Swap = &v1.NodeSwapStatus{Capacity: new(r.SwapCapacity)}
		}
	}
	if r := in.Runtime; r != nil && r.Name != "" {
		n.ContainerRuntimeVersion = r.Name + "://" + plain(r.Version)
	}
}

// plain is a version as tools compare it: "v2.4.2" is 2.4.2, and "1.6.20~ds1" is 1.6.20.
func plain(text string) string {
	if v, err := version.ParseSemantic(text); err == nil {
		return v.String()
	}
	if v, err := version.ParseGeneric(text); err == nil {
		return v.String()
	}
	return "Unknown"
}

// images are the largest ones, with few names each.
func images(all []Image, limit int) []v1.ContainerImage {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Image) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), slices.Compare(a.Names, b.Names))
	})
	if limit >= 0 && len(sorted) > limit {
		sorted = sorted[:limit]
	}
	out := make([]v1.ContainerImage, 0, len(sorted))
	for _, i := range sorted {
		out = append(out, v1.ContainerImage{Names: i.Names[:min(len(i.Names), maxNames)], SizeBytes: i.Bytes})
	}
	return out
}

// Same reports whether two statuses say the same, whenever they were said.
func Same(a, b v1.NodeStatus) bool {
	return apiequality.Semantic.DeepEqual(timeless(a), timeless(b))
}

func timeless(s v1.NodeStatus) *v1.NodeStatus {
	out := s.DeepCopy()
	for i := range out.Conditions {
		out.Conditions[i].LastHeartbeatTime = metav1.Time{}
		out.Conditions[i].LastTransitionTime.Time = out.Conditions[i].LastTransitionTime.Truncate(time.Second).UTC()
	}
	return out
}
