// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
)

// podRow is one pod as `sextant pods` shows it.
type podRow struct {
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	UID        string    `json:"uid"`
	Ready      string    `json:"ready"`
	Phase      string    `json:"phase"`
	Reason     string    `json:"reason,omitempty"`
	Lifecycle  string    `json:"lifecycle,omitempty"`
	Restarts   int32     `json:"restarts"`
	IP         string    `json:"ip,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	WaitsFor   string    `json:"waitsFor,omitempty"`
	Containers []string  `json:"containers"`
}

func podsCommand() *cobra.Command {
	var n nodeFlags
	var o output
	c := &cobra.Command{
		Use:   "pods",
		Short: "Show the pods of the node as its services see them; needs no API server",
		Example: `  sextant pods
  sextant pods -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := podRows(c.Context(), n.paths)
			if err != nil {
				return err
			}
			return printPods(c.OutOrStdout(), &o, rows, time.Now())
		},
	}
	n.asks(c)
	o.register(c)
	return c
}

func printPods(w io.Writer, o *output, rows []podRow, now time.Time) error {
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{
			r.Namespace, r.Name, r.Ready, cmp.Or(r.Reason, r.Phase), fmt.Sprint(r.Restarts), orDash(r.IP), ageOf(r.Started, now), r.WaitsFor,
		})
	}
	return o.print(w, rows, []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "IP", "AGE", "WAITS FOR"}, cells)
}

// podRows joins the statuses that status rendered with what podworker waits for. One of
// the two services may be away; it is an error if both are.
func podRows(ctx context.Context, paths house.Paths) ([]podRow, error) {
	reports, reportErr := service.Pull(ctx, paths, house.StatusPods, feed.Whole[*statusv1.PodReport])
	states, stateErr := service.Pull(ctx, paths, house.PodWorkerPods, feed.Whole[*podworkerv1.PodState])
	if reportErr != nil && stateErr != nil {
		return nil, silent(house.Status, reportErr)
	}
	pulls, err := service.Pull(ctx, paths, house.PodWorkerPulls, feed.Whole[*podworkerv1.PodPulls])
	if err != nil {
		pulls = nil // podworker is away, or older: show the rest
	}
	rows := map[string]*podRow{}
	row := func(uid, namespace, name string) *podRow {
		if rows[uid] == nil {
			rows[uid] = &podRow{UID: uid, Namespace: namespace, Name: name, Phase: "Unknown", Ready: "-", Containers: []string{}}
		}
		return rows[uid]
	}
	for uid, s := range states {
		r := row(uid, s.GetNamespace(), s.GetName())
		r.Lifecycle = lower(s.GetLifecycle().String(), "LIFECYCLE_")
		if w := s.GetWait(); w != nil {
			r.WaitsFor = fmt.Sprintf("%s %s: %s", w.GetOwner(), w.GetStep(), w.GetMessage())
			if progress := describePulls(pulls[uid], time.Now()); progress != "" && w.GetStep() == "pull" {
				r.WaitsFor = fmt.Sprintf("%s %s: %s", w.GetOwner(), w.GetStep(), progress)
			}
		}
	}
	for uid, report := range reports {
		st := v1.PodStatus{}
		if err := st.Unmarshal(report.GetStatus()); err != nil {
			return nil, fmt.Errorf("status of pod %s: %w", uid, err)
		}
		row(uid, report.GetNamespace(), report.GetName()).fill(&st)
	}
	return sortedRows(rows), nil
}

func sortedRows(rows map[string]*podRow) []podRow {
	all := make([]podRow, 0, len(rows))
	for _, r := range rows {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b podRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return all
}

// completePods completes an argument with the pods' names.
func (n *nodeFlags) completePods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	rows, err := podRows(c.Context(), n.paths)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Namespace+"/"+r.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (r *podRow) fill(st *v1.PodStatus) {
	ready := 0
	for _, c := range st.ContainerStatuses {
		if c.Ready {
			ready++
		}
		r.Restarts += c.RestartCount
		r.Containers = append(r.Containers, c.Name)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			r.Reason = c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "" && r.Reason == "":
			r.Reason = c.State.Terminated.Reason
		}
	}
	r.Ready = fmt.Sprintf("%d/%d", ready, len(st.ContainerStatuses))
	r.Phase, r.IP = string(st.Phase), st.PodIP
	if st.Reason != "" {
		r.Reason = st.Reason
	}
	if st.StartTime != nil {
		r.Started = st.StartTime.Time
	}
}
