// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri"
)

// startCalls and endCalls are the calls of the runtime that a pod's start and
// end make.
var (
	startCalls = []string{"RunPodSandbox", "ImageStatus", "PullImage", "CreateContainer", "StartContainer", "ExecSync"}
	endCalls   = []string{"ExecSync", "StopContainer", "StopPodSandbox", "ContainerStatus", "RemoveContainer", "RemovePodSandbox"}
)

// nonsense is what a runtime out of its mind answers, by call.
var nonsense = map[string]func(resp proto.Message){
	"RunPodSandbox":   func(resp proto.Message) { resp.(*runtimeapi.RunPodSandboxResponse).PodSandboxId = "" },
	"ImageStatus":     func(resp proto.Message) { resp.(*runtimeapi.ImageStatusResponse).Image = &runtimeapi.Image{} },
	"PullImage":       func(resp proto.Message) { resp.(*runtimeapi.PullImageResponse).ImageRef = "" },
	"CreateContainer": func(resp proto.Message) { resp.(*runtimeapi.CreateContainerResponse).ContainerId = "" },
	"ExecSync": func(resp proto.Message) {
		*resp.(*runtimeapi.ExecSyncResponse) = runtimeapi.ExecSyncResponse{ExitCode: -7, Stderr: []byte("\xff\xfe")}
	},
}

const subjectImage = "fake/subject"

// subject is the pod whose calls go wrong.
func subject(policy v1.PullPolicy) *v1.Pod {
	hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	return web("a", func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.Image, c.ImagePullPolicy, c.Command = subjectImage, policy, []string{"sh", "-c", "sleep infinity"}
		c.Lifecycle = &v1.Lifecycle{PostStart: hook, PreStop: hook}
	})
}

// about chooses the subject's calls of one method.
func about(method string) fakecri.Match {
	if method == "PullImage" || method == "ImageStatus" {
		return fakecri.Match{Method: method, Name: subjectImage + ":latest"}
	}
	return fakecri.Match{Method: method, Name: "a"}
}

// trouble is one way for a call to go wrong.
type trouble struct {
	name string
	// begin returns what ends the trouble, and whether the subject has run into it.
	begin func(n *node, method string) (end func(), met func() bool)
	// says is what the pod's state must hold meanwhile; empty for any wait.
	says string
	// passing: it may be over before anybody looks.
	passing bool
}

// happensTo reports whether a call has the trouble: an empty answer is no nonsense.
func (t trouble) happensTo(method string) bool {
	_, ok := nonsense[method]
	return ok || t.name != "answers nonsense"
}

var troubles = []trouble{
	{"fails", func(n *node, method string) (func(), func() bool) {
		return n.rt.Fail(about(method), -1, status.Error(codes.Internal, "the moon is in the way")).Undo, n.answered(method)
	}, "the moon is in the way", false},
	{"runs out of time", func(n *node, method string) (func(), func() bool) {
		return n.rt.Fail(about(method), -1, status.Error(codes.DeadlineExceeded, "context deadline exceeded")).Undo, n.answered(method)
	}, "deadline exceeded", false},
	{"acts and fails", func(n *node, method string) (func(), func() bool) {
		return n.rt.FailAfter(about(method), 2, status.Error(codes.Unknown, "lost on the way")).Undo, n.answered(method)
	}, "", true},
	{"stalls 30 s", func(n *node, method string) (func(), func() bool) {
		stall := n.rt.Stall(about(method))
		return func() {
			n.clock.Step(30 * time.Second)
			stall.Release()
		}, func() bool { return stall.Caught() > 0 }
	}, "", false},
	{"answers nonsense", func(n *node, method string) (func(), func() bool) {
		return n.rt.Lie(about(method), func(_, resp proto.Message) { nonsense[method](resp) }).Undo, n.answered(method)
	}, "", false},
}

// answered reports whether the runtime has answered a call of the subject.
func (n *node) answered(method string) func() bool {
	return func() bool { return n.rt.Count(about(method)) > 0 }
}

// explains reports whether a pod's state says why it is not where it should be.
func (n *node) explains(uid string, text string) bool {
	s, ok := n.states.Get(uid)
	if !ok || s.GetWait() == nil && len(s.GetWaits()) == 0 {
		return false
	}
	if text == "" {
		return true
	}
	said := s.GetWait().GetMessage()
	for _, w := range s.GetWaits() {
		said += " " + w.GetMessage() + " " + w.GetLastError()
	}
	return strings.Contains(said, text)
}

// TestFaultMatrix makes each call to the runtime go wrong in each way, for one pod
// at a time: the pod says why, the others come and go, and it recovers when the
// runtime does, with one sandbox and one live instance of its container.
func TestFaultMatrix(t *testing.T) {
	for _, trouble := range troubles {
		for _, method := range startCalls {
			if !trouble.happensTo(method) {
				continue
			}
			t.Run("start/"+method+" "+trouble.name, func(t *testing.T) { t.Parallel(); startInTrouble(t, method, trouble) })
		}
		for _, method := range endCalls {
			if !trouble.happensTo(method) {
				continue
			}
			t.Run("end/"+method+" "+trouble.name, func(t *testing.T) { t.Parallel(); endInTrouble(t, method, trouble) })
		}
	}
}

func startInTrouble(t *testing.T, method string, trouble trouble) {
	n := newNode(t, fakecri.Image{Ref: subjectImage}, fakecri.Image{Ref: "fake/sleep"})
	end, met := trouble.begin(n, method)
	n.live()
	policy := v1.PullIfNotPresent
	if method == "PullImage" {
		policy = v1.PullAlways
	}
	p := subject(policy)
	n.desire(p)
	n.pass("the trouble", 5*time.Second, met)
	if !trouble.passing {
		n.pass("says why", 5*time.Second, func() bool { return n.explains(string(p.UID), trouble.says) })
	}
	n.others()
	end()
	n.pass("recovers", 5*time.Second, func() bool { return n.settled(p.UID) && n.running("a") })
	live := 0
	for _, c := range n.rt.Containers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetLabels()["io.kubernetes.pod.name"] == "a" {
			live++
		}
	}
	if n.sandboxesOf("a") != 1 || live != 1 {
		t.Errorf("%d live sandboxes and %d live containers\n%s", n.sandboxesOf("a"), live, n.dump())
	}
}

// others: another pod comes and goes.
func (n *node) others() {
	n.t.Helper()
	other := web("other")
	n.desire(other)
	n.until("another pod comes", func() bool { return n.settled(other.UID) && n.running("other") })
	n.desire(n.deleted(other, 1))
	n.pass("and goes", 5*time.Second, func() bool { return n.released(other.UID) })
	n.forget(other.UID)
	n.until("and is forgotten", func() bool { return n.state(other.UID) == nil })
}

func endInTrouble(t *testing.T, method string, trouble trouble) {
	n := newNode(t, fakecri.Image{Ref: subjectImage}, fakecri.Image{Ref: "fake/sleep"})
	n.live()
	p := subject(v1.PullIfNotPresent)
	n.desire(p)
	n.until("up", func() bool { return n.settled(p.UID) && n.running("a") })
	id := n.rt.Container("a", "web").GetId()
	end, met := trouble.begin(n, method)
	n.desire(n.deleted(p, 60))
	if method == "RemoveContainer" || method == "RemovePodSandbox" || method == "ContainerStatus" {
		// What is left goes when config drops the pod.
		n.pass("released", 5*time.Second, func() bool { return n.released(p.UID) || met() })
		n.forget(p.UID)
	}
	n.pass("the trouble", 5*time.Second, met)
	n.others()
	end()
	n.pass("goes", 5*time.Second, func() bool { return n.released(p.UID) || n.state(p.UID) == nil })
	n.forget(p.UID)
	n.pass("is forgotten", 5*time.Second, func() bool { return n.state(p.UID) == nil })
	if left := len(n.rt.Sandboxes()) + len(n.rt.Containers()); left > 0 {
		t.Errorf("left behind:\n%s", n.dump())
	}
	if signals := strings.Join(n.rt.Signals(id), " "); strings.Count(signals, "KILL") > 1 {
		t.Errorf("signals %s", signals)
	}
}
