// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

func pack(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestDecode(t *testing.T) {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "app", "default", "uid"
	c := &v1.Container{Name: "web", Image: "img", Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{}}}}
	annotations, err := pod.ContainerAnnotations(p, c, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	record := &plegv1.PodRecord{
		Uid: "uid", Namespace: "default", Name: "app", SandboxOf: map[string]string{"c": "s"},
		Sandboxes: [][]byte{pack(t, &runtimeapi.PodSandboxStatus{
			Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 2}, State: runtimeapi.PodSandboxState_SANDBOX_READY,
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}, {}}},
			Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{
				Network: runtimeapi.NamespaceMode_NODE,
			}}},
		})},
		Containers: [][]byte{
			pack(t, &runtimeapi.ContainerStatus{
				Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "web", Attempt: 3}, State: runtimeapi.ContainerState_CONTAINER_EXITED,
				ExitCode: 7, StartedAt: 1e9, FinishedAt: 5e9, Labels: pod.ContainerLabels(p, c), Annotations: annotations,
			}),
			pack(t, &runtimeapi.ContainerStatus{Id: "foreign"}),
		},
	}
	r, err := Decode("", record)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Sandboxes[0]
	if s.ID != "s" || s.Attempt != 2 || !s.Ready || !s.HostNetwork || len(s.IPs) != 2 {
		t.Errorf("sandbox %+v", s)
	}
	want := step.Instance{
		ID: "c", Name: "web", Sandbox: "s", State: step.Exited, RestartCount: 3, Hash: pod.ContainerHash(c),
		ExitCode: 7, CreatedAt: time.Unix(0, 0), FinishedAt: time.Unix(5, 0), PreStop: true,
	}
	if len(r.Containers) != 1 || r.Containers[0] != want {
		t.Errorf("containers %+v, want %+v", r.Containers, want)
	}
	if !r.Alive() || r.Statuses["c"].GetExitCode() != 7 || pod.FullName(r.Pod()) != "app_default" {
		t.Errorf("record %+v", r)
	}
	r.Sandboxes[0].Ready = false
	if r.Alive() {
		t.Error("nothing runs, and it is alive")
	}
	r.Containers[0].State = step.Unknown
	if !r.Alive() {
		t.Error("a container that may run does not count")
	}
}

// TestDecodeRefusesHoles: a record of which a part cannot be read is no record.
func TestDecodeRefusesHoles(t *testing.T) {
	for _, record := range []*plegv1.PodRecord{
		{Sandboxes: [][]byte{{0xff}}},
		{Containers: [][]byte{{0xff}}},
	} {
		if _, err := Decode("", record); err == nil {
			t.Errorf("%v decodes", record)
		}
	}
}
