// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

var tableOut = flag.String("hostile-out", "", "file for the table")

// result is what a node did under an attack.
type result struct {
	attack   string
	sent     int64 // requests, connections or pods
	up, gone time.Duration
	fullest  string  // the service nearest to its limit of memory
	logs     float64 // KiB a minute
}

// results are those of all attacks so far, in order.
var results []result

// write writes the table of all attacks so far.
func write(t *testing.T) {
	if *tableOut == "" {
		return
	}
	var b strings.Builder
	b.WriteString(harness.The(t).Header(t))
	fmt.Fprintf(&b, "each attack for %s\n\n", *flooding)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "attack\tsent\tnew pod Ready\tgone\tnearest to its memory limit\tlogs KiB/min")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%.1f s\t%.1f s\t%s\t%.0f\n", r.attack, r.sent, r.up.Seconds(), r.gone.Seconds(), r.fullest, r.logs)
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(*tableOut, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
