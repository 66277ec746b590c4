// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// statusTellsTable compares what runs with the table of services and feeds.
func statusTellsTable(e *env) {
	type feedRow struct {
		Name     string
		Complete bool
		Error    string
	}
	type row struct {
		Service      string
		PID, UID     int
		Version      string
		MemoryBytes  int64
		Health       string
		Bus          bool
		Feeds, Reads []feedRow
	}
	names := func(feeds []feedRow) []string {
		var all []string
		for _, f := range feeds {
			all = append(all, f.Name)
		}
		slices.Sort(all)
		return all
	}
	harness.Eventually(e, usual, "status to tell the house table", func(ctx context.Context) error {
		var rows []row
		if err := json.Unmarshal([]byte(e.n.TryVerb(ctx, "status", "-o=json")), &rows); err != nil {
			return err
		}
		var services []house.Service
		var errs []error
		for _, r := range rows {
			s := house.Service(r.Service)
			services = append(services, s)
			if s == house.Bus && e.n.busOff {
				if r.Health != "off" {
					errs = append(errs, fmt.Errorf("the bus is off and %s", r.Health))
				}
				continue
			}
			if r.Health != "serving" || r.PID == 0 || r.UID == 0 || r.Version == "" || r.MemoryBytes == 0 || r.Bus == e.n.busOff && s != house.Bus {
				errs = append(errs, fmt.Errorf("%s: %+v", s, r))
			}
			for what, pair := range map[string][2][]string{
				"feeds": {names(r.Feeds), slices.Sorted(slices.Values(house.Owned(s)))},
				"reads": {names(r.Reads), slices.Sorted(slices.Values(house.Reads(s)))},
			} {
				if !slices.Equal(pair[0], pair[1]) {
					errs = append(errs, fmt.Errorf("%s: %s are %v, the table says %v", s, what, pair[0], pair[1]))
				}
			}
			for _, f := range slices.Concat(r.Feeds, r.Reads) {
				if !f.Complete || f.Error != "" {
					errs = append(errs, fmt.Errorf("%s: %+v", s, f))
				}
			}
		}
		if !slices.Equal(services, house.Services()) {
			errs = append(errs, fmt.Errorf("services %v", services))
		}
		return errors.Join(errs...)
	})
}

// operatorVerbs uses what an operator has without an API server.
func operatorVerbs(e *env) {
	e.create(e.pod("web", "--log-every=200ms"))
	pod := e.awaitRunning("web", usual)
	harness.Eventually(e, usual, "sextant pods to show it", func(ctx context.Context) error {
		rows, err := e.n.Pods(ctx)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.UID == string(pod.UID) && r.Namespace == e.ns && r.Name == "web" && r.Phase == "Running" && r.Ready == "1/1" &&
				r.IP == pod.Status.PodIP && r.Lifecycle == "syncing" && slices.Equal(r.Containers, []string{"hello"}) {
				return nil
			}
		}
		return fmt.Errorf("pods %+v", rows)
	})
	if table := e.n.Verb(e, "pods"); !strings.Contains(table, "NAMESPACE") || !strings.Contains(table, e.ns+" ") {
		e.Errorf("sextant pods:\n%s", table)
	}
	// A container that runs may not have said anything yet.
	harness.Eventually(e, usual, "sextant logs to show what the container says", func(context.Context) error {
		if log := e.n.Verb(e, "logs", e.ns+"/web"); !strings.Contains(log, "hello starts") {
			return fmt.Errorf("sextant logs: %q", log)
		}
		if lines := strings.Split(strings.TrimSpace(e.n.Verb(e, "logs", e.ns+"/web", "-c=hello", "--tail=2")), "\n"); len(lines) != 2 {
			return fmt.Errorf("sextant logs --tail=2: %q", lines)
		}
		return nil
	})
	e.await2Lines(e.ns + "/web")
	if out := e.n.TryVerb(e.Context(), "logs", e.ns+"/nobody"); !strings.Contains(out, "no pod") {
		e.Errorf("sextant logs of no pod: %q", out)
	}
	for _, s := range e.n.services() {
		file := filepath.Join(e.TempDir(), "profile")
		e.n.Verb(e, "profile", string(s), "--kind=heap", "-o="+file)
		if b, err := os.ReadFile(file); err != nil || len(b) < 100 || b[0] != 0x1f || b[1] != 0x8b {
			e.Errorf("profile of %s: %d bytes, %v", s, len(b), err)
		}
	}
	file := filepath.Join(e.TempDir(), "cpu")
	e.n.Verb(e, "profile", "podworker", "--seconds=1", "-o="+file)
	if b, err := os.ReadFile(file); err != nil || len(b) == 0 {
		e.Errorf("CPU profile: %d bytes, %v", len(b), err)
	}
}

// await2Lines follows a log until it has grown.
func (e *env) await2Lines(pod string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), usual)
	defer cancel()
	cmd := e.n.Command(ctx, "logs", pod, "-f", "--tail=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		e.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	lines := 0
	for scan := bufio.NewScanner(out); lines < 4 && scan.Scan(); {
		lines++
	}
	cancel()
	_ = cmd.Wait() // it was told to end
	if lines < 4 {
		e.Errorf("sextant logs -f printed %d lines", lines)
	}
}

// watchVerb follows the bus while a pod starts; without a bus it says so.
func watchVerb(e *env) {
	if e.n.busOff {
		if out := e.n.TryVerb(e.Context(), "watch"); !strings.Contains(out, "bus") {
			e.Errorf("sextant watch without a bus: %q", out)
		}
		return
	}
	ctx, cancel := context.WithTimeout(e.Context(), usual)
	defer cancel()
	cmd := e.n.Command(ctx, "watch", "-o=json", "--hello")
	out, err := cmd.StdoutPipe()
	if err != nil {
		e.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	want := []string{house.ConfigPods.Name, house.PodWorkerPods.Name, house.PlegPods.Name, house.StatusPods.Name}
	heard := map[string]bool{}
	created := false
	for scan := bufio.NewScanner(out); len(want) > 0 && scan.Scan(); {
		if !created { // something was heard: it listens
			e.create(e.pod("web"))
			created = true
		}
		var line struct{ Subject string }
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			e.Fatalf("%s: %v", scan.Text(), err)
		}
		heard[line.Subject] = true
		if pod := e.n.seen.pod(e.ns, "web"); pod != nil {
			want = slices.DeleteFunc(want, func(feed string) bool { return heard["sextant.v1."+feed+"."+string(pod.UID)] })
		}
	}
	cancel()
	_ = cmd.Wait() // it was told to end
	if len(want) > 0 {
		e.Errorf("nothing was heard of %v", want)
	}
}
