// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/logs"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
)

// logPods finds pods for readers of logs.
type logPods struct{ l *loop }

// pullTimeout bounds what a reader of logs waits for news.
const pullTimeout = time.Second

// Read implements logs.Pods.
func (p logPods) Read(ctx context.Context, pod *v1.Pod) ([]*runtimeapi.ContainerStatus, error) {
	record, _, err := refreshed(ctx, p.l.pleg, p.l.in.Records, pod.UID, nil)
	return statusesOf(record), err
}

func statusesOf(record *observe.Record) (all []*runtimeapi.ContainerStatus) {
	if record == nil {
		return nil
	}
	for _, c := range record.Containers {
		all = append(all, record.Statuses[c.ID])
	}
	return all
}

// Pod implements logs.Pods. What the pod's status shows pleg had published before, so
// the records are pulled first; without an answer those at hand have to do. Of two pods
// of one name the one that config lists is meant; a static pod also answers to its
// mirror's name, which is its own.
func (p logPods) Pod(ctx context.Context, namespace, name string) (logs.Pod, bool) {
	l := p.l
	within, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	if err := l.in.Records.Pull(within); err != nil {
		l.log.DebugContext(ctx, "records not pulled", service.KeyError, err.Error())
	}
	uid, spec := "", (*v1.Pod)(nil)
	for key, d := range l.in.Pods.Items() {
		if d.Pod.Namespace == namespace && d.Pod.Name == name {
			uid, spec = key, d.Pod
			break
		}
	}
	for _, key := range l.states.Keys() {
		if uid != "" {
			break
		}
		state, ok := l.states.Get(key)
		if !ok || state.GetNamespace() != namespace || state.GetName() != name || len(state.GetPod()) == 0 {
			continue
		}
		kept := &v1.Pod{}
		if err := kept.Unmarshal(state.GetPod()); err == nil {
			uid, spec = key, kept
		}
	}
	if uid == "" {
		return logs.Pod{}, false
	}
	found := logs.Pod{Spec: spec, Waiting: map[string]string{}}
	record, _ := l.in.Records.Get(uid)
	found.Statuses = statusesOf(record)
	if state, ok := l.states.Get(uid); ok {
		found.Refused = state.GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_REJECTED
		for _, wait := range state.GetWaits() {
			found.Waiting[wait.GetContainer()] = wait.GetReason()
		}
	}
	return found, true
}
