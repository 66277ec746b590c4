// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/resize/state"
)

func cpus(request, limit string) (r v1.ResourceRequirements) {
	if request != "" {
		r.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}
	}
	if limit != "" {
		r.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse(limit)}
	}
	return r
}

func of(own *v1.ResourceRequirements, first, second v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{}
	p.UID = "4be03a5a-6e7c-4a3c-8e21-8a2b5b2f5f4e"
	p.Spec.Resources = own
	p.Spec.InitContainers = []v1.Container{{Name: "first", Resources: first}}
	p.Spec.Containers = []v1.Container{{Name: "second", Resources: second}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	return p
}

// TestReadAgain: what is written is read, and is known as this agent's until a kubelet has
// written the file.
func TestReadAgain(t *testing.T) {
	own := cpus("1", "2")
	p := of(&own, cpus("100m", ""), cpus("200m", "300m"))
	pods := state.Pods{p.UID: state.AllocationOf(p)}
	data, err := state.Encode(pods)
	if err != nil {
		t.Fatal(err)
	}
	got, others, err := state.Decode(data)
	if err != nil || others || !equality.Semantic.DeepEqual(got, pods) {
		t.Errorf("%v, of another agent: %t, %v", got, others, err)
	}
	if _, has := got[p.UID].ContainerResources["debug"]; has {
		t.Error("an ephemeral container has no resources that are allocated")
	}
	kubelets := strings.Replace(string(data), `,"writer":"sextant"`, "", 1)
	if _, others, err = state.Decode([]byte(kubelets)); err != nil || !others {
		t.Errorf("of another agent: %t, %v", others, err)
	}
	for what, text := range map[string]string{
		"cut": kubelets[:20], "another sum": strings.Replace(kubelets, "100m", "101m", 1), "no text": `{"data":"","checksum":1}`,
		"other things": `{"data":"[]","checksum":0}`,
	} {
		if _, _, err := state.Decode([]byte(text)); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// TestSizes: a pod has what a file has of it, and as specified what that does not have.
func TestSizes(t *testing.T) {
	own := cpus("1", "2")
	was := of(&own, cpus("100m", ""), cpus("200m", "300m"))
	is := of(&own, cpus("100m", ""), cpus("400m", "500m"))
	if got := pod.WithSizes(is, state.AllocationOf(was).Sizes(is)); !equality.Semantic.DeepEqual(got.Spec, was.Spec) {
		t.Errorf("%+v", got.Spec)
	}
	if got := pod.WithSizes(is, state.Pod{}.Sizes(is)); got != is {
		t.Errorf("%+v", got.Spec)
	}
	if got := pod.WithSizes(is, state.AllocationOf(of(nil, cpus("100m", ""), cpus("400m", "500m"))).Sizes(is)); got != is {
		t.Errorf("a kubelet that notes no resources of pods: %+v", got.Spec)
	}
}

// TestGives: containers that have what is allocated need no change, whether the limit is
// theirs or the pod's.
func TestGives(t *testing.T) {
	own, more := cpus("1", "2"), cpus("1", "3")
	is := of(&own, cpus("100m", ""), cpus("400m", "500m"))
	for name, c := range map[string]struct {
		was   state.Pod
		gives bool
	}{
		"the same":                 {state.ActuationOf(is), true},
		"nothing was made":         {state.Pod{}, true},
		"one has less":             {state.ActuationOf(of(&own, cpus("100m", ""), cpus("200m", "500m"))), false},
		"one has the pod's limit":  {state.ActuationOf(of(&more, cpus("100m", ""), cpus("400m", "500m"))), false},
		"one has no limit, nor it": {state.ActuationOf(of(nil, cpus("100m", ""), cpus("400m", "500m"))), true},
	} {
		if got := c.was.Gives(is); got != c.gives {
			t.Errorf("%s: %t", name, got)
		}
	}
	limits := state.ActuationOf(is).ContainerResources["first"].Limits
	if limit := limits.Cpu().String(); limit != "2" {
		t.Errorf("a container without a limit has that of its pod: %s", limit)
	}
}
