// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/store"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
	"github.com/sextant-node/sextant/test/fakecri"
)

// witness stands between podworker and everything it does something to. At each call
// it reads the journal from the disk, as a process would that comes after a kill -9 at
// this moment, and wants the decision there that the call carries out.
type witness struct {
	// looking is held by calls that are judged: a life has ended when none is.
	looking sync.RWMutex
	n       *node
	started sync.Map // IDs of containers whose start was answered

	mu      sync.Mutex
	image   []byte // of the journal, as it was read last, and the records in it
	records map[types.UID]journal.Record
}

// record is what the disk has of a pod now; false for nothing.
func (w *witness) record(uid types.UID) (r journal.Record, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := filepath.Join(w.n.dir, "state", journal.FileName)
	for range 100 { // a copy may hold parts of two transactions
		data, err := os.ReadFile(path)
		if err != nil {
			return r, false
		}
		if !bytes.Equal(data, w.image) {
			records, whole := w.read(data)
			if !whole {
				continue
			}
			w.image, w.records = data, records
		}
		r, ok = w.records[uid]
		return r, ok
	}
	w.n.t.Errorf("the journal %s is never whole", path)
	return r, false
}

// read opens a copy of the journal.
func (w *witness) read(data []byte) (records map[types.UID]journal.Record, whole bool) {
	copied := filepath.Join(w.n.dir, "witness.db")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		w.n.t.Error(err)
		return nil, false
	}
	j, damage, err := journal.Open(store.Config{Path: copied, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.n.t.Error(err)
		return nil, false
	}
	records, err = j.All()
	if err := errors.Join(err, j.Close(), os.Remove(copied)); err != nil {
		w.n.t.Error(err)
		return nil, false
	}
	return records, damage == nil
}

// wants holds a call against the record that is on the disk. A call whose caller is
// gone already will not be made.
func (w *witness) wants(ctx context.Context, call string, uid types.UID, judge func(step.Facts) string) {
	w.looking.RLock()
	defer w.looking.RUnlock()
	if uid == "" || ctx.Err() != nil {
		return
	}
	r, ok := w.record(uid)
	missing := "nothing"
	if ok {
		missing = judge(r.Facts)
	}
	if missing != "" && ctx.Err() == nil {
		w.n.t.Errorf("%s of pod %s, and the disk has %s", call, uid, missing)
	}
}

// in is a judge that wants one of the states.
func in(states ...step.State) func(step.Facts) string {
	return func(f step.Facts) string {
		for _, s := range states {
			if f.State == s {
				return ""
			}
		}
		return "the state " + string(f.State)
	}
}

// admitted is a judge that wants an admission. The pod's end may be decided, and on the
// disk, in the moment before the call is cancelled.
func admitted(f step.Facts) string {
	if f.Admitted == nil {
		return "no admission, in the state " + string(f.State)
	}
	return ""
}

// over are the states of a pod whose containers have ended; the first, when one has
// come late.
var over = []step.State{step.Terminating, step.Terminated, step.Released}

// ended are the states of a pod that nothing is started for.
var ended = []step.State{step.Terminating, step.Terminated, step.Released, step.Rejected}

// ofContainer finds the pod of a container in the runtime.
func (w *witness) ofContainer(id string) (uid types.UID, c *runtimeapi.ContainerStatus) {
	for _, c := range w.n.rt.Containers() {
		if c.GetId() == id {
			return types.UID(c.GetLabels()[pod.PodUIDLabel]), c
		}
	}
	return "", nil
}

// ofSandbox finds the pod of a sandbox in the runtime.
func (w *witness) ofSandbox(id string) types.UID {
	for _, s := range w.n.rt.Sandboxes() {
		if s.GetId() == id {
			return types.UID(s.GetLabels()[pod.PodUIDLabel])
		}
	}
	return ""
}

// dying is a judge of a stop: the end of the pod, or of the container.
func dying(id string) func(step.Facts) string {
	return func(f step.Facts) string {
		if _, ok := f.Kills[id]; ok || f.Termination != nil {
			return ""
		}
		return fmt.Sprintf("neither the end of the pod nor that of container %s", id)
	}
}

// hookFailed reports whether the last command in a container failed. The start of one
// whose postStart hook fails ends it again by itself.
func (w *witness) hookFailed(id string) bool {
	calls := w.n.rt.Calls(fakecri.Match{Method: "ExecSync", ID: id})
	if len(calls) == 0 {
		return false
	}
	last := calls[len(calls)-1]
	resp, _ := last.Response.(*runtimeapi.ExecSyncResponse)
	return last.Err != nil || resp.GetExitCode() != 0
}

// witnessedRuntime is the runtime, with the witness before it.
type witnessedRuntime struct {
	runtimeapi.RuntimeServiceClient
	w *witness
}

func (r witnessedRuntime) RunPodSandbox(ctx context.Context, req *runtimeapi.RunPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	r.w.wants(ctx, "RunPodSandbox", types.UID(req.GetConfig().GetMetadata().GetUid()), admitted)
	return r.RuntimeServiceClient.RunPodSandbox(ctx, req, opts...)
}

// CreateContainer wants, for an instance that follows one that ended, the back-off
// that this start has made longer.
func (r witnessedRuntime) CreateContainer(ctx context.Context, req *runtimeapi.CreateContainerRequest, opts ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	name := req.GetConfig().GetMetadata().GetName()
	uid := types.UID(req.GetSandboxConfig().GetMetadata().GetUid())
	r.w.wants(ctx, "CreateContainer", uid, func(f step.Facts) string {
		for _, c := range r.w.n.rt.Containers() {
			former := types.UID(c.GetLabels()[pod.PodUIDLabel]) == uid && c.GetMetadata().GetName() == name && c.GetStartedAt() != 0
			if at := time.Unix(0, c.GetFinishedAt()); former && c.GetFinishedAt() != 0 && f.Containers[name].Crash.Updated.Before(at) {
				return fmt.Sprintf("a back-off of %s, before the container ended at %s", f.Containers[name].Crash.Updated, at)
			}
		}
		return admitted(f)
	})
	return r.RuntimeServiceClient.CreateContainer(ctx, req, opts...)
}

func (r witnessedRuntime) StartContainer(ctx context.Context, req *runtimeapi.StartContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	uid, _ := r.w.ofContainer(req.GetContainerId())
	r.w.wants(ctx, "StartContainer", uid, admitted)
	resp, err := r.RuntimeServiceClient.StartContainer(ctx, req, opts...)
	if err == nil {
		r.w.started.Store(req.GetContainerId(), true)
	}
	return resp, err
}

func (r witnessedRuntime) UpdateContainerResources(ctx context.Context, req *runtimeapi.UpdateContainerResourcesRequest, opts ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	uid, _ := r.w.ofContainer(req.GetContainerId())
	r.w.wants(ctx, "UpdateContainerResources", uid, admitted)
	return r.RuntimeServiceClient.UpdateContainerResources(ctx, req, opts...)
}

func (r witnessedRuntime) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	uid, _ := r.w.ofContainer(req.GetContainerId())
	r.w.wants(ctx, "StopContainer", uid, func(f step.Facts) string {
		if f.Admitted != nil && r.w.hookFailed(req.GetContainerId()) {
			return ""
		}
		return dying(req.GetContainerId())(f)
	})
	return r.RuntimeServiceClient.StopContainer(ctx, req, opts...)
}

// RemoveContainer wants what is known of a container's last instance: how often it was
// made, and how it ended, decides whether it is made again.
func (r witnessedRuntime) RemoveContainer(ctx context.Context, req *runtimeapi.RemoveContainerRequest, opts ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	uid, c := r.w.ofContainer(req.GetContainerId())
	r.w.wants(ctx, "RemoveContainer", uid, func(f step.Facts) string {
		if f.State != step.Syncing {
			return in(ended...)(f)
		}
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || c.GetStartedAt() == 0 {
			return ""
		}
		facts := f.Containers[c.GetMetadata().GetName()]
		switch {
		case facts.Instances <= int(c.GetMetadata().GetAttempt()):
			return fmt.Sprintf("%d instances of it, not instance %d", facts.Instances, c.GetMetadata().GetAttempt())
		case facts.Last != nil && facts.Last.ID == c.GetId() && facts.Last.Exit == nil:
			return "not that it ended"
		}
		return ""
	})
	return r.RuntimeServiceClient.RemoveContainer(ctx, req, opts...)
}

func (r witnessedRuntime) RemovePodSandbox(ctx context.Context, req *runtimeapi.RemovePodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.w.wants(ctx, "RemovePodSandbox", r.w.ofSandbox(req.GetPodSandboxId()), in(append(ended, step.Syncing)...))
	return r.RuntimeServiceClient.RemovePodSandbox(ctx, req, opts...)
}

// witnessedSandboxes are the actuators of what a pod has on the disk.
type witnessedSandboxes struct {
	Sandboxes
	w *witness
}

// CleanPodDirs implements Sandboxes.
func (s witnessedSandboxes) CleanPodDirs(ctx context.Context, p *v1.Pod) error {
	s.w.wants(ctx, "CleanPodDirs", p.UID, in(ended...))
	return s.Sandboxes.CleanPodDirs(ctx, p)
}

// witnessedContainers are the actuators of hooks and images.
type witnessedContainers struct {
	Containers
	w *witness

	mu     sync.Mutex
	failed map[string]time.Time // when a pull failed, by pod and image
}

// PreStop implements Containers.
func (c *witnessedContainers) PreStop(ctx context.Context, spec actuate.KillSpec) error {
	c.w.wants(ctx, "PreStop", spec.Pod.UID, dying(spec.ContainerID))
	return c.Containers.PreStop(ctx, spec)
}

// EnsureImage wants, for a pull that follows one that failed, the back-off between.
func (c *witnessedContainers) EnsureImage(ctx context.Context, spec actuate.ImageSpec) (string, error) {
	key := string(spec.Pod.UID) + " " + spec.Container + " " + spec.Image
	c.mu.Lock()
	failed, again := c.failed[key]
	c.mu.Unlock()
	if again {
		c.w.wants(ctx, "EnsureImage", spec.Pod.UID, func(f step.Facts) string {
			for _, pull := range f.Pulls {
				if pull.Image == spec.Image && !pull.Backoff.Updated.Before(failed) {
					return ""
				}
			}
			return fmt.Sprintf("the back-offs %v, none since the pull of %s failed at %s", f.Pulls, spec.Image, failed)
		})
	}
	ref, err := c.Containers.EnsureImage(ctx, spec)
	c.mu.Lock()
	defer c.mu.Unlock()
	if why, _ := actuate.ReasonOf(err); why == reason.ErrImagePull && ctx.Err() == nil {
		c.failed[key] = c.w.n.clock.Now()
	} else {
		delete(c.failed, key)
	}
	return ref, err
}

// witnessedVolumes is volume, with the witness before it.
type witnessedVolumes struct {
	volumes
	w *witness
}

func (v witnessedVolumes) Declare(ctx context.Context, req *volumev1.DeclareRequest, opts ...grpc.CallOption) (*volumev1.DeclareResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, err
	}
	v.w.wants(ctx, "Declare", p.UID, admitted)
	return v.volumes.Declare(ctx, req, opts...)
}

func (v witnessedVolumes) Withdraw(ctx context.Context, req *volumev1.WithdrawRequest, opts ...grpc.CallOption) (*volumev1.WithdrawResponse, error) {
	v.w.wants(ctx, "Withdraw", types.UID(req.GetUid()), in(over...))
	v.w.nothingRuns(ctx, "Withdraw", req.GetUid())
	return v.volumes.Withdraw(ctx, req, opts...)
}

// witnessedResources is resource, with the witness before it.
type witnessedResources struct {
	resources
	w *witness
}

func (r witnessedResources) Resize(ctx context.Context, req *resourcev1.ResizeRequest, opts ...grpc.CallOption) (*resourcev1.ResizeResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, err
	}
	r.w.wants(ctx, "Resize", p.UID, admitted)
	return r.resources.Resize(ctx, req, opts...)
}

func (r witnessedResources) Settle(ctx context.Context, req *resourcev1.SettleRequest, opts ...grpc.CallOption) (*resourcev1.SettleResponse, error) {
	r.w.wants(ctx, "Settle", types.UID(req.GetUid()), admitted)
	return r.resources.Settle(ctx, req, opts...)
}

func (r witnessedResources) Release(ctx context.Context, req *resourcev1.ReleaseRequest, opts ...grpc.CallOption) (*resourcev1.ReleaseResponse, error) {
	r.w.wants(ctx, "Release", types.UID(req.GetUid()), in(over...))
	r.w.nothingRuns(ctx, "Release", req.GetUid())
	return r.resources.Release(ctx, req, opts...)
}

// nothingRuns wants no container of a pod that was started and runs. One whose start
// was given up may run at any time.
func (w *witness) nothingRuns(ctx context.Context, call, uid string) {
	for _, c := range w.n.rt.Containers() {
		if c.GetLabels()[pod.PodUIDLabel] != uid || c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || ctx.Err() != nil {
			continue
		}
		if _, started := w.started.Load(c.GetId()); started {
			w.n.t.Errorf("%s of pod %s while container %s runs", call, uid, c.GetId())
		}
	}
}
