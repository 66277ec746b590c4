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

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	"github.com/sextant-node/sextant/services/supervisor"
)

// serviceRow is one service as `sextant status` shows it.
type serviceRow struct {
	Service string `json:"service"`
	PID     int64  `json:"pid,omitempty"`
	UID     uint32 `json:"uid"`
	Version string `json:"version,omitempty"`
	// CPUPercent of one core, over the last moment.
	CPUPercent float64 `json:"cpuPercent"`
	CPUSeconds float64 `json:"cpuSeconds"`
	// MemoryBytes is the proportional set size.
	MemoryBytes int64     `json:"memoryBytes"`
	Health      string    `json:"health"`
	Reason      string    `json:"reason,omitempty"`
	Started     time.Time `json:"started,omitzero"`
	Epoch       string    `json:"epoch,omitempty"`
	Bus         bool      `json:"bus"`
	Feeds       []feedRow `json:"feeds,omitempty"`
	Reads       []feedRow `json:"reads,omitempty"`
	// StateFiles are those that were damaged or cannot be written.
	StateFiles []stateRow `json:"stateFiles,omitempty"`
}

// stateRow is a durable file of a service.
type stateRow struct {
	Path string `json:"path"`
	// Trouble is why it cannot be written since Since.
	Trouble string    `json:"trouble,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Damage  string    `json:"damage,omitempty"`
}

type feedRow struct {
	Name     string `json:"name"`
	Items    uint64 `json:"items"`
	Revision uint64 `json:"revision"`
	Complete bool   `json:"complete"`
	Error    string `json:"error,omitempty"`
}

func statusCommand() *cobra.Command {
	var n nodeFlags
	var o output
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the services of the node: pid, version, CPU, memory, health",
		Long: `Show the services of the node: pid, version, CPU, memory, health. Exits with 3 when a
service is down or failing, or no node runs.`,
		Example: `  sextant status
  sextant status -o json | jq '.[] | select(.health != "serving")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := serviceRows(c.Context(), n.paths, 300*time.Millisecond)
			if err != nil {
				return err
			}
			if err := printServices(c.OutOrStdout(), &o, rows, time.Now()); err != nil {
				return err
			}
			return wellness(rows)
		},
	}
	n.asks(c)
	// Of a node that does not answer the rows say why.
	c.PreRunE = func(c *cobra.Command, _ []string) error { return checkNode(c.Name(), n.paths) }
	o.register(c)
	return c
}

// wellness is the error of services that are down or failing. One that is starting waits
// for something and says for what.
func wellness(rows []serviceRow) error {
	var ill []string
	down := 0
	for _, r := range rows {
		switch r.Health {
		case "down":
			down++
			ill = append(ill, r.Service+" is down: "+advised(r.Reason))
		case "failing":
			ill = append(ill, r.Service+" is failing: "+advised(r.Reason))
		}
	}
	switch {
	case len(ill) == 0:
		return nil
	case down == len(rows):
		return notRunning()
	}
	return notWell("%s", strings.ReplaceAll(strings.Join(ill, "; "), "\n", " "))
}

func printServices(w io.Writer, o *output, rows []serviceRow, now time.Time) error {
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{
			r.Service, fmt.Sprint(r.PID), r.Version, fmt.Sprintf("%.1f%%", r.CPUPercent),
			fmt.Sprintf("%.1f MiB", float64(r.MemoryBytes)/(1<<20)), r.Health, ageOf(r.Started, now), r.remarks(),
		})
	}
	return o.print(w, rows, []string{"SERVICE", "PID", "VERSION", "CPU", "MEMORY", "HEALTH", "AGE", "REASON"}, cells)
}

// remarks are why a service is not serving, and what is wrong with its files.
func (r serviceRow) remarks() string {
	var all []string
	if r.Reason != "" {
		all = append(all, r.Reason)
	}
	for _, f := range r.StateFiles {
		if f.Trouble != "" {
			all = append(all, "in memory only: "+f.Trouble)
		}
		if f.Damage != "" {
			all = append(all, f.Damage)
		}
	}
	return strings.ReplaceAll(strings.Join(all, "; "), "\n", "; ")
}

// serviceRows asks every service for its Hello; the row of one that does not answer
// within three seconds has the error. CPU is measured over window.
func serviceRows(ctx context.Context, paths house.Paths, window time.Duration) ([]serviceRow, error) {
	all := house.Services()
	rows := make([]serviceRow, len(all))
	ids, err := house.ReadIdentities(paths.Identities(), 0)
	if err != nil {
		return nil, err
	}
	plan, err := supervisor.ReadPlan(paths.Run)
	if err != nil {
		plan = &supervisor.Plan{Run: paths.Run, State: paths.State} // the services know more
	}
	var wait sync.WaitGroup
	for i, s := range all {
		wait.Go(func() {
			rows[i] = serviceRowOf(ctx, plan, s)
			rows[i].UID = ids[s]
			measure(&rows[i], window)
		})
	}
	wait.Wait()
	return rows, nil
}

func serviceRowOf(ctx context.Context, plan *supervisor.Plan, s house.Service) serviceRow {
	row := serviceRow{Service: string(s), Health: "down"}
	if s == house.Bus && plan.Bus != "" {
		row.Health, row.Reason = "off", "another NATS server is used"
		if plan.Bus == "off" {
			row.Reason = "switched off"
		}
		return row
	}
	hello, err := helloOf(ctx, plan.Paths(), s)
	if err != nil {
		row.Reason = silence(plan, s, err)
		return row
	}
	row.PID, row.Version, row.Epoch = hello.GetPid(), hello.GetVersion(), hello.GetEpoch()
	row.Health = strings.ToLower(strings.TrimPrefix(hello.GetHealth().String(), "HEALTH_"))
	row.Reason, row.Started, row.Bus = hello.GetHealthReason(), hello.GetStartedAt().AsTime(), hello.GetBusConnected()
	for _, f := range hello.GetFeeds() {
		row.Feeds = append(row.Feeds, feedRow{f.GetName(), f.GetItems(), f.GetRevision().GetN(), f.GetComplete(), ""})
	}
	for _, m := range hello.GetMirrors() {
		row.Reads = append(row.Reads, feedRow{m.GetName(), m.GetItems(), m.GetRevision().GetN(), m.GetComplete(), m.GetError()})
	}
	for _, f := range hello.GetStateFiles() {
		row.StateFiles = append(row.StateFiles, stateRow{Path: f.GetPath(), Trouble: f.GetTrouble(), Since: wire.TimeOf(f.GetSince()), Damage: f.GetDamage()})
	}
	return row
}

// silence is why a service does not answer: that it cannot be started, where that is known.
func silence(plan *supervisor.Plan, s house.Service, err error) string {
	if reason := plan.Startable(s); reason != nil {
		err = reason
	}
	return err.Error()
}

func helloOf(ctx context.Context, paths house.Paths, s house.Service) (*nodev1.HelloResponse, error) {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: paths.Socket(s), Timeout: 3 * time.Second})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	return nodev1.NewNodeServiceClient(conn).Hello(ctx, &nodev1.HelloRequest{Service: string(house.Operator), Protocol: house.Protocol})
}

// measure fills in the values of /proc; without root some of them stay zero.
func measure(row *serviceRow, window time.Duration) {
	if row.PID == 0 {
		return
	}
	before, err := supervisor.CPU(int(row.PID))
	if err != nil {
		return
	}
	began := time.Now()
	if pss, err := service.PSS(fmt.Sprintf("/proc/%d/smaps_rollup", row.PID)); err == nil {
		row.MemoryBytes = pss
	}
	time.Sleep(window)
	after, err := supervisor.CPU(int(row.PID))
	if err != nil {
		return
	}
	row.CPUSeconds = after.Seconds()
	row.CPUPercent = 100 * (after - before).Seconds() / time.Since(began).Seconds()
}
