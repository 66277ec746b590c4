// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/rpc"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

// instances are statuses of container "c", newest first.
func instances(states ...runtimeapi.ContainerState) []*runtimeapi.ContainerStatus {
	other := &runtimeapi.ContainerStatus{Id: "other", Metadata: &runtimeapi.ContainerMetadata{Name: "other"}, State: running, CreatedAt: 99}
	list := []*runtimeapi.ContainerStatus{other}
	for i := len(states) - 1; i >= 0; i-- { // unsorted on purpose
		list = append(list, &runtimeapi.ContainerStatus{
			Id: string(rune('a' + i)), Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, State: states[i], CreatedAt: int64(50 - i),
		})
	}
	return list
}

func TestChoose(t *testing.T) {
	for _, tc := range []struct {
		name     string
		states   []runtimeapi.ContainerState // newest is a, then b …
		waiting  string
		previous bool
		want     string
		err      string
	}{
		{"running", []runtimeapi.ContainerState{running, exited}, "", false, "a", ""},
		{"before the running", []runtimeapi.ContainerState{running, exited}, "", true, "b", ""},
		{"nothing before", []runtimeapi.ContainerState{running}, "", true, "", `previous terminated container "c" in pod "p" not found`},
		{"ended", []runtimeapi.ContainerState{exited, exited}, "", false, "a", ""},
		{"before the ended", []runtimeapi.ContainerState{exited, exited}, "", true, "b", ""},
		{"crash loop", []runtimeapi.ContainerState{exited, exited}, "CrashLoopBackOff", false, "a", ""},
		{"before the next try", []runtimeapi.ContainerState{exited, exited}, "CrashLoopBackOff", true, "a", ""},
		{"made, not started", []runtimeapi.ContainerState{created, exited}, "", false, "b", ""},
		{"before the one made", []runtimeapi.ContainerState{created, exited}, "", true, "b", ""},
		{"never ran", nil, "ContainerCreating", false, "", `container "c" in pod "p" is waiting to start: ContainerCreating`},
		{"no image", nil, "ErrImagePull", false, "", `container "c" in pod "p" is waiting to start: image can't be pulled`},
		{"no image again", nil, "ImagePullBackOff", false, "", `container "c" in pod "p" is waiting to start: trying and failing to pull image`},
		{"refused", nil, "refused", false, "", `container "c" in pod "p" is not available`},
		{"an init container failed", nil, "init", false, "", `container "c" in pod "p" is waiting to start: PodInitializing`},
		{"nothing known", nil, "", false, "", `container "c" in pod "p" is waiting to start - no logs yet`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Pod{Spec: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, Statuses: instances(tc.states...)}
			switch p.Refused = tc.waiting == "refused"; tc.waiting {
			case "":
			case "init":
				p.Spec.Spec.InitContainers = []v1.Container{{Name: "i"}}
			default:
				p.Waiting = map[string]string{"c": tc.waiting}
			}
			got, err := choose(p, "c", tc.previous)
			if got.GetId() != tc.want {
				t.Errorf("chose %q, want %q", got.GetId(), tc.want)
			}
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || err.Error() != tc.err || !rpc.Is(err, rpc.Invalid)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

func TestContainerOf(t *testing.T) {
	one := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
	two := one.DeepCopy()
	two.Spec.InitContainers = []v1.Container{{Name: "i"}}
	for _, tc := range []struct {
		pod        *v1.Pod
		give, want string
		kind       rpc.Kind
		err        string
	}{
		{one, "", "a", 0, ""},
		{two, "i", "i", 0, ""},
		{two, "", "", rpc.Invalid, "a container name must be specified for pod p, choose one of: [i a]"},
		{one, "x", "", rpc.NotFound, `container "x" not found in pod "p"`},
	} {
		got, err := containerOf(tc.pod, tc.give)
		if got != tc.want || tc.err != "" && (err == nil || err.Error() != tc.err || !rpc.Is(err, tc.kind)) || tc.err == "" && err != nil {
			t.Errorf("%q: %q, %v", tc.give, got, err)
		}
	}
}
