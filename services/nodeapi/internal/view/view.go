// SPDX-License-Identifier: Apache-2.0

// Package view is what the node API knows of pods: as config wants them, as status
// reports them, and as pleg saw them in the runtime.
//
// It owns nothing: replicas of the other services' feeds. A pod or container that a
// caller names and that is not known is looked for once more before it is denied. It
// comes back by reading the feeds; until then there are no pods.
package view

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/stats"
)

// Pods are the pods of the node. They are safe for concurrent use.
type Pods struct {
	desired *feed.Replica[*desired]
	// atAPI has the statuses of the API server's pods, packed and read on demand.
	atAPI   *feed.Replica[[]byte]
	reports *feed.Replica[*statusv1.PodReport]
	running *feed.Replica[*stats.Pod]
	callers *callerlog.Log
}

// New makes the replicas; the kit runs them.
func New(kit *service.Kit, callers *callerlog.Log) (*Pods, error) {
	desired, desiredErr := service.Replica(kit, house.ConfigPods, decodeDesired, service.Unhurried)
	atAPI, atAPIErr := service.Replica(kit, house.ConfigStatuses, decodeStatus, service.OnDemand)
	reports, reportsErr := service.Replica(kit, house.StatusPods, feed.Whole[*statusv1.PodReport], service.Unhurried)
	running, runningErr := service.Replica(kit, house.PlegPods, decodeRunning, service.Unhurried)
	return &Pods{desired, atAPI, reports, running, callers}, errors.Join(desiredErr, atAPIErr, reportsErr, runningErr)
}

// listTimeout bounds how long a list waits for config.
const listTimeout = time.Second

// Desired lists the desired pods with the statuses that the API server has; static pods
// with those of status.pods, which are there without an API server too. If config does
// not answer the statuses are those it last sent.
func (p *Pods) Desired(ctx context.Context) *v1.PodList {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := p.atAPI.Pull(ctx); err != nil {
		p.callers.Log(ctx, slog.LevelDebug, "", "statuses not read", service.KeyError, err.Error())
	}
	all := []v1.Pod{}
	for uid, d := range p.desired.Items() {
		one, err := unpack(d.packed)
		if err != nil {
			continue // never: it was unpacked when it came
		}
		one.TypeMeta = metav1.TypeMeta{}
		if report, ok := p.reports.Get(uid); ok && d.static {
			status := v1.PodStatus{}
			if err := status.Unmarshal(report.GetStatus()); err == nil {
				one.Status = status
			}
		}
		if packed, ok := p.atAPI.Get(uid); ok && d.apart {
			if at, err := unpack(packed); err == nil {
				one.Status, one.ResourceVersion = at.Status, at.ResourceVersion
			}
		}
		all = append(all, *one)
	}
	return listOf(all)
}

// Running lists what the runtime runs, desired or not.
func (p *Pods) Running() *v1.PodList {
	all := []v1.Pod{}
	for uid, seen := range p.Measured() {
		one := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: seen.Namespace, Name: seen.Name, UID: types.UID(uid)}}
		for _, c := range seen.Containers {
			one.Spec.Containers = append(one.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
		}
		all = append(all, one)
	}
	return listOf(all)
}

func listOf(all []v1.Pod) *v1.PodList {
	slices.SortFunc(all, func(a, b v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: all}
}

// Measured are the pods of which something runs, by UID.
func (p *Pods) Measured() map[string]*stats.Pod {
	all := p.running.Items()
	maps.DeleteFunc(all, func(_ string, seen *stats.Pod) bool { return len(seen.Sandboxes)+len(seen.Containers) == 0 })
	return all
}
