// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/services/status/internal/gather"
)

func st(phase v1.PodPhase, ready v1.ConditionStatus) *v1.PodStatus {
	return &v1.PodStatus{Phase: phase, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}}
}

func object(s *v1.PodStatus) *Object {
	return &Object{Namespace: "default", Name: "web", UID: "u1", Version: 7, Status: s}
}

func deleting(o *Object) *Object { o.Deleting = true; return o }
func gone(o *Object) *Object     { o.Gone = true; return o }

func TestPodNext(t *testing.T) {
	pending, unready, ready := st(v1.PodPending, "False"), st(v1.PodRunning, "False"), st(v1.PodRunning, "True")
	up := st(v1.PodRunning, "True")
	up.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	begun, half := st(v1.PodPending, "False"), st(v1.PodPending, "False")
	begun.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
	half.StartTime = begun.StartTime
	half.ContainerStatuses = []v1.ContainerStatus{
		{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
	}
	done := st(v1.PodSucceeded, "False")
	more := st(v1.PodSucceeded, "False")
	more.Message = "not known there"
	tests := []struct {
		name  string
		pod   Pod
		kind  Kind
		class Class
	}{
		{"not at the API server", Pod{Status: ready}, None, 0},
		{"gone", Pod{Object: gone(object(pending)), Status: ready}, None, 0},
		{"held", Pod{Object: object(pending)}, None, 0},
		{"nothing new", Pod{Object: object(ready), Status: ready}, None, 0},
		{"phase", Pod{Object: object(pending), Status: unready}, Patch, Settling},
		{"ready", Pod{Object: object(unready), Status: ready}, Patch, Urgent},
		{"not ready", Pod{Object: object(ready), Status: unready}, Patch, Urgent},
		{"terminal", Pod{Object: object(ready), Status: done}, Patch, Urgent},
		{"a container ends", Pod{Object: object(up), Status: unready}, Patch, Urgent},
		{"one of two containers is made", Pod{Object: object(begun), Status: half}, Patch, Starting},
		{"the beginning", Pod{Object: object(st(v1.PodPending, "False")), Status: half}, Patch, Settling},
		{"being deleted, a container ends", Pod{Object: deleting(object(up)), Status: unready}, Patch, Ending},
		{"being deleted, something else", Pod{Object: deleting(object(pending)), Status: unready}, Patch, Ending},
		{"being deleted, a probe fails", Pod{Object: deleting(object(ready)), Status: unready}, Patch, Urgent},
		{"being deleted, over", Pod{Object: deleting(object(up)), Status: done}, Patch, Urgent},
		{"terminal is never taken back", Pod{Object: object(done), Status: unready}, None, 0},
		{"released before the status is there", Pod{Object: deleting(object(ready)), Status: done, Released: true}, Patch, Urgent},
		{"released and reported", Pod{Object: deleting(object(done)), Status: done, Released: true}, Delete, Urgent},
		{"released, reported as far as the API server takes it", Pod{Object: deleting(object(done)), Status: more, Ignored: more, Released: true}, Delete, Urgent},
		{"released, something else was not taken", Pod{Object: deleting(object(done)), Status: more, Ignored: ready, Released: true}, Patch, Urgent},
		{"released, the end was not taken", Pod{Object: deleting(object(ready)), Status: done, Ignored: done, Released: true}, Patch, Urgent},
		{"not taken, not released", Pod{Object: deleting(object(done)), Status: more, Ignored: more}, Patch, Urgent},
		{"released, reported, status held", Pod{Object: deleting(object(done)), Released: true}, Delete, Urgent},
		{"released, not terminal", Pod{Object: deleting(object(ready)), Status: ready, Released: true}, None, 0},
		{"reported, not released", Pod{Object: deleting(object(done)), Status: done}, None, 0},
		{"released by itself, nobody deletes it", Pod{Object: object(done), Status: done, Released: true}, None, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.pod.Next()
			if got.Kind != tt.kind || got.Class != tt.class {
				t.Errorf("%q class %d, want %q class %d", got.Kind, got.Class, tt.kind, tt.class)
			}
			if got.Kind != None && got.UID != "u1" {
				t.Errorf("written to UID %q", got.UID)
			}
		})
	}
}

// TestPatchKeepsOthers: what others wrote since the rendering is not undone.
func TestPatchKeepsOthers(t *testing.T) {
	was := st(v1.PodRunning, "False")
	was.Conditions = append(was.Conditions, v1.PodCondition{Type: "example.com/gate", Status: "True"})
	rendered := st(v1.PodRunning, "True")
	rendered.Conditions = append(rendered.Conditions, v1.PodCondition{Type: "example.com/gate", Status: "False"})
	got := Pod{Object: object(was), Status: rendered}.Next()
	if got.Kind != Patch {
		t.Fatalf("%q", got.Kind)
	}
	patch, err := podstatus.Patch(got.UID, got.Was, got.Status)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Metadata struct{ UID string }
		Status   struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal(patch, &body); err != nil {
		t.Fatal(err)
	}
	if body.Metadata.UID != "u1" {
		t.Errorf("patch names UID %q", body.Metadata.UID)
	}
	for _, c := range body.Status.Conditions {
		if c.Type == "example.com/gate" {
			t.Errorf("patch writes another's condition: %s", patch)
		}
	}
}

func static(hash string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "etcd-n1", UID: "s1",
		Annotations: map[string]string{pod.ConfigHashAnnotation: hash, pod.ConfigSourceAnnotation: "file"},
	}}
}

func TestStaticNext(t *testing.T) {
	mirror := func(hash string) *Object {
		return &Object{Namespace: "kube-system", Name: "etcd-n1", UID: "m1", Version: 3, Mirror: hash, Status: &v1.PodStatus{Phase: v1.PodPending}}
	}
	ended := func(hash string) *Object {
		m := mirror(hash)
		m.Status = gather.Merge(st(v1.PodFailed, "False"), m.Status)
		return m
	}
	node := Node{Name: "n1", UID: "node-uid"}
	tests := []struct {
		name string
		in   Static
		want Kind
	}{
		{"new", Static{Pod: static("h1"), MirrorKnown: true, Node: node}, CreateMirror},
		{"the Node does not exist yet", Static{Pod: static("h1"), MirrorKnown: true}, None},
		{"mirrors not read yet", Static{Pod: static("h1"), Node: node}, None},
		{"there", Static{Pod: static("h1"), Mirror: mirror("h1"), MirrorKnown: true, Node: node}, None},
		{"status", Static{Pod: static("h1"), Mirror: mirror("h1"), Status: st(v1.PodRunning, "True"), Node: node}, Patch},
		{"of another version", Static{Pod: static("h2"), Mirror: mirror("h1"), Node: node}, DeleteMirror},
		{"old version was deleted", Static{Pod: static("h2"), Mirror: gone(mirror("h1")), MirrorKnown: true, Node: node}, CreateMirror},
		{"of another version, which is being ended", Static{Pod: static("h2"), Mirror: mirror("h1"), Status: st(v1.PodPending, "False"), Ending: true, Node: node}, None},
		{"somebody deletes it while it is being ended", Static{Pod: static("h2"), Mirror: deleting(mirror("h1")), Ending: true, Node: node}, DeleteMirror},
		{"the manifest went, the pod is being ended", Static{Mirror: mirror("h1"), Known: true, Ending: true}, None},
		{"it says how it ends meanwhile", Static{Mirror: mirror("h1"), Known: true, Ending: true, Last: st(v1.PodRunning, "False")}, Patch},
		{"and how it has ended, before it goes", Static{Mirror: mirror("h1"), Known: true, Last: st(v1.PodFailed, "False")}, Patch},
		{"which the API server has", Static{Mirror: ended("h1"), Known: true, Last: st(v1.PodFailed, "False")}, DeleteMirror},
		{"which the API server does not take as it is", Static{
			Mirror: mirror("h1"), Known: true, Last: st(v1.PodFailed, "False"), Ignored: st(v1.PodFailed, "False"),
		}, DeleteMirror},
		{"another version has ended, and says how", Static{Pod: static("h2"), Mirror: mirror("h1"), Last: st(v1.PodFailed, "False"), Node: node}, Patch},
		{"somebody deletes it", Static{Pod: static("h1"), Mirror: deleting(mirror("h1")), Node: node}, DeleteMirror},
		{"the manifest went", Static{Mirror: mirror("h1"), Known: true}, DeleteMirror},
		{"manifests not read yet", Static{Mirror: mirror("h1")}, None},
		{"a manifest comes back after its end", Static{
			Pod: static("h1"), Node: node, Status: st(v1.PodRunning, "True"),
			Mirror: func() *Object { m := mirror("h1"); m.Status.Phase = v1.PodFailed; return m }(),
		}, DeleteMirror},
		{"held after its end", Static{
			Pod: static("h1"), Node: node, Mirror: func() *Object { m := mirror("h1"); m.Status.Phase = v1.PodFailed; return m }(),
		}, None},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.in.Next()
			if got.Kind != tt.want {
				t.Fatalf("%q, want %q", got.Kind, tt.want)
			}
			if (got.Kind == DeleteMirror || got.Kind == Patch) && got.UID != "m1" {
				t.Errorf("written to UID %q", got.UID)
			}
		})
	}
}

func TestMirror(t *testing.T) {
	p := static("h1")
	p.Status.Phase = v1.PodRunning
	m := Mirror(p, Node{Name: "n1", UID: "node-uid"})
	if m.Annotations[pod.ConfigMirrorAnnotation] != "h1" || m.Annotations[pod.ConfigSourceAnnotation] != "file" {
		t.Errorf("annotations %v", m.Annotations)
	}
	if len(m.OwnerReferences) != 1 {
		t.Fatalf("owners %v", m.OwnerReferences)
	}
	if o := m.OwnerReferences[0]; o.Kind != "Node" || o.UID != "node-uid" || o.Controller == nil || !*o.Controller {
		t.Errorf("owner %+v", o)
	}
	if m.UID != "" || m.Status.Phase != "" {
		t.Errorf("mirror has UID %q, phase %q", m.UID, m.Status.Phase)
	}
	if _, ok := p.Annotations[pod.ConfigMirrorAnnotation]; ok {
		t.Error("the static pod was written to")
	}
}
