// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// answer is what `sextant why` prints for a pod.
type answer struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Phase     string `json:"phase,omitempty"`
	Ready     bool   `json:"ready"`
	Lifecycle string `json:"lifecycle,omitempty"`
	// Causes, the first to look at first; empty when the pod waits for nothing.
	Causes []cause `json:"causes"`
}

// cause is one thing that a pod waits for.
type cause struct {
	// Owner is the service that must act, or "runtime", "container", "API server".
	Owner     string    `json:"owner"`
	Step      string    `json:"step"`
	Container string    `json:"container,omitempty"`
	Message   string    `json:"message,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	LastError string    `json:"lastError,omitempty"`
	NextRetry time.Time `json:"nextRetry,omitzero"`
}

func whyCommand() *cobra.Command {
	var n nodeFlags
	var o output
	c := &cobra.Command{
		Use:   "why POD",
		Short: "Explain what a pod waits for: who must act, what, since when, the last error, the next try",
		Example: `  sextant why web
  sextant why kube-system/etcd-node1 -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: n.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			known := gatherAll(c.Context(), n.paths)
			uids, err := known.find(args[0])
			if err != nil {
				return err
			}
			answers := make([]answer, 0, len(uids))
			for _, uid := range uids {
				answers = append(answers, known.explain(uid))
			}
			return printAnswers(c.OutOrStdout(), &o, answers, time.Now())
		},
	}
	n.asks(c)
	o.register(c)
	return c
}

func printAnswers(w io.Writer, o *output, answers []answer, now time.Time) error {
	var cells [][]string
	for _, a := range answers {
		name := a.Namespace + "/" + a.Name
		if len(a.Causes) == 0 {
			cells = append(cells, []string{name, "-", "waits for nothing", "-", "-", ""})
		}
		for _, c := range a.Causes {
			step := c.Step
			if c.Container != "" {
				step += " of " + c.Container
			}
			text := c.Message
			if c.LastError != "" && !strings.Contains(text, c.LastError) {
				text = strings.TrimPrefix(text+"; last error: "+c.LastError, "; ")
			}
			next := "-"
			switch {
			case c.NextRetry.IsZero():
			case c.NextRetry.After(now):
				next = "in " + ageOf(now, c.NextRetry)
			default:
				next = "now"
			}
			cells = append(cells, []string{name, c.Owner, step, ageOf(c.Since, now), next, text})
		}
	}
	return o.print(w, answers, []string{"POD", "OWNER", "STEP", "SINCE", "NEXT TRY", "WHY"}, cells)
}

// known holds the services' answers, by pod UID. away has the error of each service
// that does not answer.
type known struct {
	desired  map[string]*v1.Pod
	states   map[string]*podworkerv1.PodState
	pulls    map[string]*podworkerv1.PodPulls
	volumes  map[string]*volumev1.PodVolumes
	devices  map[string]*resourcev1.PodAllocation
	records  map[string]*plegv1.PodRecord
	verdicts map[string]*proberv1.PodVerdicts
	reports  map[string]*statusv1.PodReport
	away     map[house.Service]string
}

// gatherAll reads all of it at the same time.
func gatherAll(ctx context.Context, paths house.Paths) *known {
	k := &known{away: map[house.Service]string{}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	wait.Go(readInto(ctx, paths, house.ConfigPods, desiredPod, &k.desired, k.away, &mu))
	wait.Go(readInto(ctx, paths, house.PodWorkerPods, feed.Whole[*podworkerv1.PodState], &k.states, k.away, &mu))
	wait.Go(readInto(ctx, paths, house.PodWorkerPulls, feed.Whole[*podworkerv1.PodPulls], &k.pulls, k.away, &mu))
	wait.Go(readInto(ctx, paths, house.VolumePods, feed.Whole[*volumev1.PodVolumes], &k.volumes, k.away, &mu))
	wait.Go(readInto(ctx, paths, house.ResourcePods, feed.Whole[*resourcev1.PodAllocation], &k.devices, k.away, &mu))
	wait.Go(readInto(ctx, paths, house.PlegPods, feed.Whole[*plegv1.PodRecord], &k.records, k.away, &mu))
	wait.Go(readInto(ctx, paths, house.ProberVerdicts, feed.Whole[*proberv1.PodVerdicts], &k.verdicts, k.away, &mu))
	wait.Go(readInto(ctx, paths, house.StatusPods, feed.Whole[*statusv1.PodReport], &k.reports, k.away, &mu))
	wait.Wait()
	return k
}

func readInto[M proto.Message, T any](ctx context.Context, paths house.Paths, f house.FeedOf[M], keep func(string, M) (T, error), into *map[string]T, away map[house.Service]string, mu *sync.Mutex) func() {
	return func() {
		items, err := service.Pull(ctx, paths, f, keep)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			away[f.Owner] = err.Error()
			return
		}
		*into = items
	}
}

func desiredPod(_ string, d *configv1.DesiredPod) (*v1.Pod, error) {
	p := &v1.Pod{}
	return p, p.Unmarshal(d.GetPod())
}

// find returns the UIDs of the pods that an argument names: a pod and those of the same
// name before and after it.
func (k *known) find(arg string) ([]string, error) {
	rows := map[string]*podRow{}
	for uid, p := range k.desired {
		rows[uid] = &podRow{UID: uid, Namespace: p.Namespace, Name: p.Name}
	}
	for uid, r := range k.reports {
		rows[uid] = &podRow{UID: uid, Namespace: r.GetNamespace(), Name: r.GetName()}
	}
	for uid, s := range k.states {
		rows[uid] = &podRow{UID: uid, Namespace: s.GetNamespace(), Name: s.GetName()}
	}
	all := sortedRows(rows)
	namespace, name, err := findPod(all, arg)
	if err != nil {
		for s, why := range k.away {
			err = fmt.Errorf("%w; %s does not answer: %s", err, s, why)
		}
		return nil, err
	}
	var uids []string
	for _, r := range all {
		if r.Namespace == namespace && r.Name == name {
			uids = append(uids, r.UID)
		}
	}
	return uids, nil
}
