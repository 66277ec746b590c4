// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/wire"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// explain joins what the services report about one pod. Causes are in the order in
// which they cause each other, as far as that is known: services that do not answer,
// what podworker waits for, what keeps a running pod from being ready, what keeps its
// status from the API server.
func (k *known) explain(uid string) answer {
	a := answer{UID: uid, Causes: []cause{}}
	add := func(more ...cause) { a.Causes = append(a.Causes, more...) }
	state, report := k.states[uid], k.reports[uid]
	var status v1.PodStatus
	switch {
	case state != nil:
		a.Namespace, a.Name = state.GetNamespace(), state.GetName()
		a.Lifecycle = lower(state.GetLifecycle().String(), "LIFECYCLE_")
	case report != nil:
		a.Namespace, a.Name = report.GetNamespace(), report.GetName()
	case k.desired[uid] != nil:
		a.Namespace, a.Name = k.desired[uid].Namespace, k.desired[uid].Name
	}
	if report != nil && status.Unmarshal(report.GetStatus()) == nil {
		a.Phase = string(status.Phase)
		for _, c := range status.Conditions {
			a.Ready = a.Ready || c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		}
	}
	for _, s := range house.Services() {
		if why, ok := k.away[s]; ok {
			add(cause{Owner: string(s), Step: "answer", LastError: why, Message: "the service does not answer"})
		}
	}
	over := a.Phase == string(v1.PodSucceeded) || a.Phase == string(v1.PodFailed)
	switch {
	case state == nil && k.desired[uid] != nil && k.away[house.PodWorker] == "":
		add(cause{Owner: string(house.PodWorker), Step: "take up", Message: "the pod has not been taken up yet"})
	case state != nil:
		add(k.stateCauses(uid, state)...)
	}
	if !a.Ready && !over && state.GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_SYNCING {
		add(k.unready(uid, &status)...)
	}
	if !over {
		add(k.deviceCauses(uid)...)
	}
	if report != nil && report.GetError() != "" {
		add(cause{Owner: string(house.Status), Step: "report", Message: "the API server does not have the newest status", LastError: report.GetError()})
	}
	return a
}

// stateCauses are what podworker waits for, in the words of another service where that
// one knows more.
func (k *known) stateCauses(uid string, state *podworkerv1.PodState) []cause {
	var found []cause
	if r := k.records[uid]; r.GetError() != "" {
		found = append(found, cause{Owner: "runtime", Step: "read", Message: "the runtime does not answer for this pod", LastError: r.GetError(), Since: wire.TimeOf(r.GetErrorSince())})
	}
	if v := state.GetVerdict(); v != nil {
		found = append(found, cause{Owner: "node", Step: strings.ToLower(v.GetKind()), Message: join(state.GetReason(), state.GetMessage()), Since: wire.TimeOf(v.GetTime())})
	}
	wait := state.GetWait()
	volumes := k.volumeCauses(uid)
	waits := containerCauses(state)
	switch {
	case wait == nil:
	case wait.GetOwner() == string(house.Volume) && len(volumes) > 0:
		found = append(found, volumes...)
	default:
		c := cause{Owner: wait.GetOwner(), Step: wait.GetStep(), Message: wait.GetMessage(), Since: wire.TimeOf(wait.GetSince()), NextRetry: wire.TimeOf(wait.GetRetryAt())}
		if wait.GetStep() == "pull" {
			c.Message = cmp.Or(k.pulling(uid), c.Message)
		}
		// The wait of a container is merged into the pod's wait if both are about the
		// same thing.
		for i, w := range waits {
			if w.LastError != "" && (strings.Contains(c.Message, w.LastError) || strings.Contains(c.Message, w.Container) || len(waits) == 1) {
				c.Container, c.LastError = w.Container, w.LastError
				if c.NextRetry.IsZero() {
					c.NextRetry = w.NextRetry
				}
				waits = slices.Delete(waits, i, i+1)
				break
			}
		}
		found = append(found, c)
	}
	found = append(found, waits...)
	if at := state.GetTerminatingAt(); at != nil && wait == nil && state.GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_TERMINATING {
		found = append(found, cause{
			Owner: "container", Step: "stop", Since: at.AsTime(), NextRetry: at.AsTime().Add(pod.Seconds(state.GetGraceSeconds())),
			Message: fmt.Sprintf("the containers have %d s to end, then they are killed", state.GetGraceSeconds()),
		})
	}
	return found
}

// containerCauses are the waits of containers that have a message or an error.
func containerCauses(state *podworkerv1.PodState) []cause {
	var found []cause
	for _, w := range state.GetWaits() {
		if w.GetMessage() == "" && w.GetLastError() == "" {
			continue
		}
		found = append(found, cause{
			Owner: "runtime", Step: w.GetReason(), Container: w.GetContainer(), Message: w.GetMessage(),
			LastError: cmp.Or(w.GetLastError(), w.GetMessage()), NextRetry: wire.TimeOf(w.GetRetryAt()),
		})
	}
	return found
}

// deviceCauses are the devices of the pod that are not known to be healthy: it may run, and
// have nothing of them.
func (k *known) deviceCauses(uid string) (found []cause) {
	for _, h := range k.devices[uid].GetDeviceHealth() {
		if h.GetHealth() == "Healthy" {
			continue
		}
		found = append(found, cause{
			Owner: "device plugin", Step: "health", Container: h.GetContainer(), LastError: h.GetMessage(),
			Message: fmt.Sprintf("device %s of %s: %s", h.GetId(), h.GetResource(), h.GetHealth()),
		})
	}
	return found
}

func (k *known) volumeCauses(uid string) []cause {
	var found []cause
	for _, v := range k.volumes[uid].GetVolumes() {
		if v.GetState() == volumev1.VolumeState_VOLUME_STATE_MOUNTED && v.GetError() == "" {
			continue
		}
		found = append(found, cause{
			Owner: string(house.Volume), Step: cmp.Or(v.GetStep(), lower(v.GetState().String(), "VOLUME_STATE_")),
			Message: fmt.Sprintf("volume %s (%s)", v.GetName(), v.GetPlugin()), LastError: v.GetError(),
			Since: wire.TimeOf(v.GetSince()), NextRetry: wire.TimeOf(v.GetRetryAt()),
		})
	}
	return found
}

// pulling describes the progress of a pod's pulls; empty without one.
func (k *known) pulling(uid string) string { return describePulls(k.pulls[uid], time.Now()) }

func describePulls(pulls *podworkerv1.PodPulls, now time.Time) string {
	var parts []string
	for _, p := range pulls.GetPulls() {
		text := fmt.Sprintf("image %s is being pulled for %s", p.GetImage(), ageOf(p.GetSince().AsTime(), now))
		if p.GetQueued() {
			text = fmt.Sprintf("image %s waits for its turn to be pulled for %s", p.GetImage(), ageOf(p.GetSince().AsTime(), now))
		}
		if p.StoreGrownBytes != nil {
			text += fmt.Sprintf(" (image store %+.1f MiB)", float64(p.GetStoreGrownBytes())/(1<<20))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// unready are the containers that run and are not ready, by their probes.
func (k *known) unready(uid string, status *v1.PodStatus) []cause {
	var found []cause
	failing := map[string]bool{}
	for _, v := range k.verdicts[uid].GetVerdicts() {
		if v.GetResult() != proberv1.Result_RESULT_FAILURE {
			continue
		}
		failing[v.GetContainer()] = true
		found = append(found, cause{
			Owner: "container", Step: lower(v.GetKind().String(), "PROBE_KIND_") + " probe", Container: v.GetContainer(),
			Message: "the probe fails", LastError: v.GetMessage(), Since: wire.TimeOf(v.GetSince()),
		})
	}
	for _, c := range status.ContainerStatuses {
		if c.State.Running == nil || c.Ready || failing[c.Name] {
			continue
		}
		step := "readiness probe"
		if c.Started != nil && !*c.Started {
			step = "startup probe"
		}
		found = append(found, cause{Owner: string(house.Prober), Step: step, Container: c.Name, Message: "no probe has succeeded yet", Since: c.State.Running.StartedAt.Time})
	}
	return found
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}
