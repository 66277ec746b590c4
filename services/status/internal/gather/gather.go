// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
)

// Hold says why a pod's status is not rendered now; empty means: render.
type Hold string

// The reasons to keep the last status.
const (
	// Go: nothing is in the way.
	Go Hold = ""
	// HoldDesired: config has not answered since this process started, so it is not
	// known what the API server has.
	HoldDesired Hold = "config.pods was never read"
	// HoldUnlisted: podworker has a pod of the API server, and config, which has not
	// read all sources since it started, does not list it yet. A status made without
	// what the API server has would reset times and conditions.
	HoldUnlisted Hold = "config.pods does not list the pod yet"
	// HoldUnknown: podworker has not taken the pod up, so there is nothing to say.
	HoldUnknown Hold = "podworker.pods has no such pod"
	// HoldRecords: what runs has not been read since this process started.
	HoldRecords Hold = "pleg.pods was never read"
	// HoldRuntime: the runtime's name, part of every container id, is not known.
	HoldRuntime Hold = "pleg.runtime was never read"
	// HoldWorker: containers are gone from the record, or ended for good by their
	// policy, and podworker, which may have removed or replaced them or ended the pod,
	// has not answered since.
	HoldWorker Hold = "containers are gone or have ended and podworker has not said why"
	// HoldStopped: podworker says that every container has stopped, and the record
	// at hand is from before that.
	HoldStopped Hold = "the record is older than the end of the pod"
)

// Worker is podworker's view of a pod.
type Worker struct {
	Namespace, Name string
	// Pod is the specification that is run; nil for an orphan.
	Pod *v1.Pod
	// Facts for the rendering.
	Facts podstatus.Facts
	// Messages are termination messages by bare container id.
	Messages map[string]string
	// Source is file, http, api, or runtime for an orphan.
	Source string
}

// Record is pleg's view of a pod.
type Record struct {
	Sandboxes  []*runtimeapi.PodSandboxStatus
	Containers []*runtimeapi.ContainerStatus
	// Err is set while the runtime does not answer for this pod.
	Err string
}

// Input is what the feeds say about one pod.
type Input struct {
	// Desired is the pod as config serves it; nil when config does not have it.
	Desired *v1.Pod
	// DesiredSynced and DesiredComplete are the state of config.pods: it was read at
	// all; what it does not list does not exist.
	DesiredSynced, DesiredComplete bool
	// Worker is nil when podworker does not have the pod.
	Worker *Worker
	// WorkerAnswers says that podworker was asked after Record was read.
	WorkerAnswers bool
	// Record is nil when pleg lists nothing of the pod.
	Record *Record
	// RecordsSynced and RecordsComplete are the state of pleg.pods: it was read at
	// all; what it does not list does not exist.
	RecordsSynced, RecordsComplete bool
	// RecordAnswers says that pleg was asked after Worker was read.
	RecordAnswers bool
	// Probes are the verdicts by bare container id.
	Probes map[string]podstatus.ProbeVerdict
	// Health is that of the pod's devices.
	Health podstatus.Health
	// OOMKilled are IDs of containers in which the kernel killed a process for want of memory.
	OOMKilled []string
	// Last is the status rendered last, by this process or, from the journal, by an
	// earlier one; nil if there is none.
	Last *v1.PodStatus
	// API is the newest status known to be at the API server (of a static pod: that
	// of its mirror), nil if there is none.
	API  *v1.PodStatus
	Node podstatus.Node
	Now  time.Time
}

// Gather makes the input of a rendering, or says why there is none now.
func Gather(in Input) (podstatus.Input, Hold) {
	switch {
	case in.Worker == nil:
		return podstatus.Input{}, HoldUnknown
	case !in.DesiredSynced:
		return podstatus.Input{}, HoldDesired
	case in.Desired == nil && in.Worker.Source == pod.SourceAPI && !in.DesiredComplete:
		return podstatus.Input{}, HoldUnlisted
	case !in.RecordsSynced:
		return podstatus.Input{}, HoldRecords
	case in.Node.RuntimeName == "":
		return podstatus.Input{}, HoldRuntime
	}
	spec := in.Worker.Pod
	if spec == nil {
		spec = in.Desired
	}
	if spec == nil {
		return podstatus.Input{}, HoldUnknown
	}
	old := Merge(in.Last, in.API)
	out := podstatus.Input{
		Facts: in.Worker.Facts, Probes: in.Probes, Health: in.Health, OOMKilled: in.OOMKilled, Node: in.Node, Now: in.Now,
		Observed: observed(in, old), Old: old,
	}
	if in.Worker.Source == pod.SourceAPI {
		out.Reported = in.API
	}
	out.Pod = withMeta(spec, in.Desired)
	if before := generation(out.Old); out.Pod.Generation > before && unjudged(in) {
		out.Pod.Generation = before
	}
	if out.Facts.Lifecycle.ContainersStopped() {
		if anyRunning(in.Record) || !in.RecordAnswers && unseen(in.Worker.Facts, out.Old, in.Record) {
			return podstatus.Input{}, HoldStopped
		}
	} else if !in.WorkerAnswers && (lost(out.Old, out.Observed) || over(out)) {
		return podstatus.Input{}, HoldWorker
	}
	return out, Go
}

// withMeta is the specification podworker runs under the metadata config has:
// generation and deletion move on while the worker is still at the former. It has no status.
func withMeta(spec, desired *v1.Pod) *v1.Pod {
	out := v1.Pod{ObjectMeta: spec.ObjectMeta, Spec: spec.Spec}
	if desired != nil {
		out.ObjectMeta = desired.ObjectMeta
	}
	return &out
}

// observed is the record with the termination messages only podworker can read. One that it has
// no more, for it has removed the container since the record was read, is in the old status.
func observed(in Input, old *v1.PodStatus) podstatus.Observed {
	o := podstatus.Observed{At: in.Now, Complete: in.RecordsComplete}
	if in.Record == nil {
		return o
	}
	// An item of the feed is a whole reading of that pod, whatever the rest of the
	// feed misses; unless it is the last one before the runtime stopped answering.
	o.Complete = in.Record.Err == ""
	o.Sandboxes = in.Record.Sandboxes
	o.Containers = make([]*runtimeapi.ContainerStatus, len(in.Record.Containers))
	for i, c := range in.Record.Containers {
		o.Containers[i] = c
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		if message := in.Worker.Messages[c.GetId()]; message != "" {
			o.Containers[i] = exited(c, pod.JoinTerminationMessage(c.GetMessage(), message))
		} else if message := said(old, c); message != "" {
			o.Containers[i] = exited(c, message)
		}
	}
	return o
}

// said is the message that a status has of the end of a container; empty for none.
func said(s *v1.PodStatus, c *runtimeapi.ContainerStatus) string {
	if s == nil {
		return ""
	}
	for _, list := range statuses(s) {
		for i := range list {
			for _, end := range []*v1.ContainerStateTerminated{list[i].State.Terminated, list[i].LastTerminationState.Terminated} {
				if end != nil && strings.HasSuffix(end.ContainerID, "://"+c.GetId()) &&
					end.ExitCode == c.GetExitCode() && end.FinishedAt.Unix() == time.Unix(0, c.GetFinishedAt()).Unix() {
					return end.Message
				}
			}
		}
	}
	return ""
}

// exited is a container status with another message; the original is shared.
func exited(c *runtimeapi.ContainerStatus, message string) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.StartedAt,
		FinishedAt: c.FinishedAt, ExitCode: c.ExitCode, Image: c.Image, ImageRef: c.ImageRef,
		Reason: c.Reason, Message: message, Labels: c.Labels, Annotations: c.Annotations,
		Mounts: c.Mounts, Resources: c.Resources, ImageId: c.ImageId,
		User: c.User, StopSignal: c.StopSignal,
	}
}

func anyRunning(r *Record) bool {
	return r != nil && slices.ContainsFunc(r.Containers, func(c *runtimeapi.ContainerStatus) bool {
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	})
}
