// SPDX-License-Identifier: Apache-2.0

// Package hostile_test runs a node, each of its services under the memory limit of
// its unit, and has others do their worst: strangers on the network and on the
// machine, and pods. The node goes on: no process ends, none takes more memory than
// its unit allows, the logs grow by at most 1 MiB a minute, and other pods start,
// are probed and are removed in time.
//
//	make hostile                 all of it, at full size
//	go test ./hostile -short     a moment of each
//
// What a process may not do under the uid of a service is tried by TestRightsOnSockets
// and the tests of two uids, in cmd/sextant.
package hostile_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// flooding is how long each flood lasts.
var flooding = flag.Duration("flood", time.Minute, "how long each flood lasts; 10 s with -short")

func TestMain(m *testing.M) {
	if run := os.Getenv(asKnocker); run != "" {
		knock(run)
		return
	}
	flag.Parse()
	if testing.Short() {
		*flooding = 10 * time.Second
	}
	harness.Main(m)
}
