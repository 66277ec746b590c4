// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/pleg/internal/record"
)

func labels(uid string) map[string]string {
	return map[string]string{pod.PodUIDLabel: uid, pod.PodNameLabel: "name-" + uid, pod.PodNamespaceLabel: "ns"}
}

func container(id, uid string, state runtimeapi.ContainerState) *runtimeapi.Container {
	return &runtimeapi.Container{Id: id, PodSandboxId: "s-" + uid, State: state, Labels: labels(uid)}
}

const (
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

func TestGroup(t *testing.T) {
	pods := record.Group(
		[]*runtimeapi.PodSandbox{{Id: "s-a", Labels: labels("a")}, {Id: "stranger"}},
		[]*runtimeapi.Container{container("1", "a", running), container("2", "b", exited), container("3", "a", exited), {Id: "stranger"}},
	)
	if len(pods) != 2 || len(pods["a"].Sandboxes) != 1 || len(pods["a"].Containers) != 2 || len(pods["b"].Sandboxes) != 0 || len(pods["b"].Containers) != 1 {
		t.Errorf("groups %v", pods)
	}
}

func TestFingerprint(t *testing.T) {
	sandbox := func(state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Id: "s", State: state}
	}
	ready, notReady := runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	listing := func(s *runtimeapi.PodSandbox, c ...*runtimeapi.Container) *record.Listing {
		return &record.Listing{Sandboxes: []*runtimeapi.PodSandbox{s}, Containers: c}
	}
	one := listing(sandbox(ready), container("1", "a", running), container("2", "a", running))
	same := listing(sandbox(ready), container("2", "a", running), container("1", "a", running))
	if one.Fingerprint() != same.Fingerprint() {
		t.Error("the order counts")
	}
	for what, other := range map[string]*record.Listing{
		"sandbox state":   listing(sandbox(notReady), container("1", "a", running), container("2", "a", running)),
		"container state": listing(sandbox(ready), container("1", "a", running), container("2", "a", exited)),
		"one fewer":       listing(sandbox(ready), container("1", "a", running)),
		"another id":      listing(sandbox(ready), container("1", "a", running), container("3", "a", running)),
		"nothing":         {},
		"nil":             nil,
	} {
		if one.Fingerprint() == other.Fingerprint() {
			t.Errorf("%s does not count", what)
		}
	}
	if (*record.Listing)(nil).Fingerprint() != (&record.Listing{}).Fingerprint() {
		t.Error("nothing is not nothing")
	}
}

// TestNewestFirstWithAClockThatWasSetBack: the greater attempt is newer, whenever it was made.
func TestNewestFirstWithAClockThatWasSetBack(t *testing.T) {
	r, err := record.Build("a", &record.Listing{},
		[]*runtimeapi.PodSandboxStatus{
			{Id: "s0", CreatedAt: 9, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 0}},
			{Id: "s1", CreatedAt: 1, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 1}},
		},
		[]*runtimeapi.ContainerStatus{
			{Id: "c0", CreatedAt: 8, Metadata: &runtimeapi.ContainerMetadata{Attempt: 0}},
			{Id: "c2", CreatedAt: 2, Metadata: &runtimeapi.ContainerMetadata{Attempt: 2}},
			{Id: "c1", CreatedAt: 3, Metadata: &runtimeapi.ContainerMetadata{Attempt: 1}},
		})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, data := range r.GetSandboxes() {
		s := &runtimeapi.PodSandboxStatus{}
		err = errors.Join(err, proto.Unmarshal(data, s))
		ids = append(ids, s.GetId())
	}
	for _, data := range r.GetContainers() {
		c := &runtimeapi.ContainerStatus{}
		err = errors.Join(err, proto.Unmarshal(data, c))
		ids = append(ids, c.GetId())
	}
	if want := []string{"s1", "s0", "c2", "c1", "c0"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("order %v, %v, want %v", ids, err, want)
	}
}

// TestMountsOfARecord: those alone that readers use.
func TestMountsOfARecord(t *testing.T) {
	r, err := record.Build("a", &record.Listing{}, nil, []*runtimeapi.ContainerStatus{{
		Id: "c", Annotations: map[string]string{pod.TerminationMessagePathAnnotation: "said/last"},
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/a", Readonly: true}, {ContainerPath: "/b", Readonly: true, RecursiveReadOnly: true}, {ContainerPath: "/c"},
			{ContainerPath: "/said/last"}, {ContainerPath: "/image", Image: &runtimeapi.ImageSpec{Image: "i"}},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &runtimeapi.ContainerStatus{}
	if err := proto.Unmarshal(r.GetContainers()[0], c); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, m := range c.GetMounts() {
		paths = append(paths, m.GetContainerPath())
	}
	if want := []string{"/b", "/said/last", "/image"}; !slices.Equal(paths, want) {
		t.Errorf("mounts %q, want %q", paths, want)
	}
}

func TestBuild(t *testing.T) {
	listing := &record.Listing{Containers: []*runtimeapi.Container{container("old", "a", exited), container("new", "a", running), container("vanished", "a", exited)}}
	r, err := record.Build("a", listing,
		[]*runtimeapi.PodSandboxStatus{{Id: "s1", CreatedAt: 1, Labels: labels("a")}, {Id: "s2", CreatedAt: 5}},
		[]*runtimeapi.ContainerStatus{{Id: "old", CreatedAt: 2}, {Id: "new", CreatedAt: 3}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if r.GetUid() != "a" || r.GetName() != "name-a" || r.GetNamespace() != "ns" {
		t.Errorf("record of %s, %s/%s", r.GetUid(), r.GetNamespace(), r.GetName())
	}
	var ids []string
	for _, data := range r.GetSandboxes() {
		s := &runtimeapi.PodSandboxStatus{}
		if err := proto.Unmarshal(data, s); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.GetId())
	}
	for _, data := range r.GetContainers() {
		c := &runtimeapi.ContainerStatus{}
		if err := proto.Unmarshal(data, c); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.GetId())
	}
	if want := []string{"s2", "s1", "new", "old"}; len(ids) != 4 || ids[0] != want[0] || ids[1] != want[1] || ids[2] != want[2] || ids[3] != want[3] {
		t.Errorf("order %v, want %v", ids, want)
	}
	if of := r.GetSandboxOf(); len(of) != 2 || of["new"] != "s-a" || of["old"] != "s-a" {
		t.Errorf("sandboxes of containers %v", of)
	}
	if r, err := record.Build("a", listing, nil, nil); r != nil || err != nil {
		t.Errorf("record of nothing: %v, %v", r, err)
	}
}
