// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/store"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/services/prober/internal/probe"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
	"github.com/sextant-node/sextant/services/prober/internal/turns"
)

// Config is prober's configuration at start.
type Config struct {
	// Share is how many probes of one pod run at once; 8 when zero.
	Share int
	// Parallel is how many probes run at once besides the first of each pod; 256 when
	// zero.
	Parallel int
}

// Service is prober.
type Service struct {
	kit     *service.Kit
	now     func() time.Time
	metrics *metrics
	probes  *probe.Prober
	beat    func()

	pods     *feed.Replica[*v1.Pod]
	records  *feed.Replica[*observed]
	verdicts *feed.Owner[*proberv1.PodVerdicts]
	events   *feed.Events
	file     *store.Store
	journal  *store.Table[*proberv1.PodVerdicts]

	dirty *signal.Keys // pods to look at again, by UID
	done  chan finished

	// What follows belongs to the loop.
	known map[string]*v1.Pod // pods whose series and verdicts exist
	// host is the node's address as the status of a pod had it last: a pod gets its status
	// later than it comes, which is no change of the pod unless it is on the host's network.
	host  string
	plan  *schedule.Schedule
	turns *turns.Turns[*question]
	// complete: every pod of config and pleg was looked at once.
	complete bool
}

// question is what one or more probes of a container want to know.
type question struct {
	targets []schedule.Target
	subject probe.Subject
	stop    context.CancelFunc // while it is asked
}

// finished is a question that was asked.
type finished struct {
	*question
	outcome probe.Outcome
	took    time.Duration
	// abandoned: nothing was learnt, for the container is not probed any more.
	abandoned bool
}
