// SPDX-License-Identifier: Apache-2.0

package figures_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/e2e/bench/figures"
)

const serviceLog = `{"time":"2026-11-22T02:00:00.010Z","level":"INFO","msg":"pod desired","service":"config","uid":"u1"}
{"time":"2026-11-22T02:00:00.010Z","level":"INFO","msg":"service starts","service":"config"}
not JSON
{"time":"2026-11-22T02:00:00.015Z","msg":"action begins","action":"admit","uid":"u1"}
{"time":"2026-11-22T02:00:00.016Z","msg":"action begins","action":"sandbox attempt=0","uid":"other"}
{"time":"2026-11-22T02:00:00.025Z","msg":"action begins","action":"sandbox attempt=0","uid":"u1"}
{"time":"2026-11-22T02:00:00.026Z","msg":"action begins","action":"stop-sandbox/x","uid":"u1"}
{"time":"2026-11-22T02:00:00.125Z","msg":"action ended","action":"sandbox attempt=0","uid":"u1"}
{"time":"2026-11-22T02:00:00.135Z","msg":"action begins","action":"start/pause sandbox=a restarts=0 image=b","uid":"u1"}
{"time":"2026-11-22T02:00:00.195Z","msg":"action ended","action":"start/pause sandbox=a restarts=0 image=b","uid":"u1"}
`

func at(ms int) time.Time {
	return time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

func TestBudget(t *testing.T) {
	lines, err := figures.ReadLog(strings.NewReader(serviceLog))
	if err != nil {
		t.Fatal(err)
	}
	start := figures.Start{UID: "u1", Sent: at(0), Asked: at(200), Answered: at(206), Seen: at(205), Lines: lines}
	stages, err := figures.Budget([]figures.Start{start})
	if err != nil {
		t.Fatal(err)
	}
	// The client was told before the server had answered the write.
	for i, want := range []float64{10, 5, 10, 100, 10, 60, 5, 6, 0, 206} {
		if got := 1000 * stages[i].Times[0]; math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: %v ms, want %v", stages[i].Name, got, want)
		}
	}
	if table := figures.BudgetTable(stages); !strings.Contains(table, "100.0  100.0  sandbox: the runtime makes it\n") {
		t.Errorf("table\n%s", table)
	}
	start.Asked = time.Time{}
	if _, err := figures.Budget([]figures.Start{start}); err == nil || !strings.Contains(err.Error(), "pod u1: nobody noted") {
		t.Errorf("a moment is missing: %v", err)
	}
}

func TestAudit(t *testing.T) {
	const log = `{"kind":"Event","stage":"ResponseComplete","verb":"patch","user":{"username":"system:node:n"},"objectRef":{"resource":"pods","namespace":"a","name":"p","subresource":"status"},"requestReceivedTimestamp":"2026-11-22T02:00:01.000000Z","stageTimestamp":"2026-11-22T02:00:01.006000Z"}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:node:other"},"objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-11-22T02:00:01.000000Z"}
{"stage":"ResponseStarted","verb":"watch","user":{"username":"system:node:n"},"objectRef":{"resource":"configmaps"},"requestReceivedTimestamp":"2026-11-22T02:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"watch","user":{"username":"system:node:n"},"objectRef":{"resource":"configmaps"},"requestReceivedTimestamp":"2026-11-22T02:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"update","user":{"username":"system:node:n"},"objectRef":{"resource":"leases","name":"n"},"requestReceivedTimestamp":"2026-11-22T02:00:03.000000Z"}
{"stage":"ResponseComplete","verb":"get","user":{"username":"system:node:n"},"objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-11-22T02:01:00.000000Z"}
{"stage":"ResponseCompl`
	all, err := figures.ReadAudit(strings.NewReader(log), "system:node:n")
	if err != nil || len(all) != 5 {
		t.Fatalf("read %d, %v", len(all), err)
	}
	if took := all[0].Answered.Sub(all[0].Received); took != 6*time.Millisecond {
		t.Errorf("the patch took %s", took)
	}
	kinds, sum := figures.Count(all, at(0), at(60000), func(r figures.Request) bool { return !r.AboutNode() })
	if sum != 2 || kinds["patch pods/status"] != 1 || kinds["watch configmaps"] != 1 {
		t.Errorf("%v requests: %v", sum, kinds)
	}
	if _, sum := figures.Count(all, at(0), at(60000), func(figures.Request) bool { return true }); sum != 3 {
		t.Errorf("%v requests in all", sum)
	}
}
