// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
)

// How often links to logs that are gone, and records of pulls of images that are gone, are
// removed: the kubelet's periods of collecting containers, and images.
const (
	linksPeriod   = time.Minute
	recordsPeriod = 5 * time.Minute
)

// tidier removes what belongs to no pod's worker.
type tidier struct {
	in       *Inputs
	actuator *actuate.Actuator
	clock    clock.WithTicker
	log      *slog.Logger
}

// run removes it until ctx ends, while it is known which containers there are.
func (t tidier) run(ctx context.Context) error {
	links, records := t.clock.NewTicker(linksPeriod), t.clock.NewTicker(recordsPeriod)
	defer links.Stop()
	defer records.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-links.C():
			if t.in.Records.Complete() {
				err = t.actuator.RemoveDeadLinks(t.in.liveLinks())
			}
		case <-records.C():
			err = t.actuator.PruneRecords(ctx, t.clock.Now())
		}
		if err != nil && ctx.Err() == nil {
			t.log.Warn("leftovers not removed", service.KeyError, err.Error())
		}
	}
}

// liveLinks are the names of the legacy links to the logs of containers that have not
// exited.
func (in *Inputs) liveLinks() map[string]bool {
	live := map[string]bool{}
	for _, r := range in.Records.Items() {
		for id, status := range r.Statuses {
			info, err := pod.ParseContainer(status.GetLabels(), status.GetAnnotations())
			if err == nil && status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
				live[filepath.Base(pod.LegacyLogLink("", info.Pod.Name, info.Pod.Namespace, info.Name, id))] = true
			}
		}
	}
	return live
}
