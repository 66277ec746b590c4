// SPDX-License-Identifier: Apache-2.0

// Package devices_test is about pods that have devices of a plugin, claims of a DRA driver,
// and CPUs and memory of their own. TestDeviceKills kills the services of their node, while
// pods come and go, plugins and drivers end, hang and come back with other devices, and the
// node restarts. TestTakeOver goes from the reference kubelet to Sextant and back under
// them. What each process has is read where it cannot be wrong: of its environment and its
// affinity. The machine is one of the tests' own: a kubelet and plugins have places in it
// that cannot be chosen.
//
//	make device-kills    500 kills and more, docs/device-kills.txt
package devices_test

import (
	"flag"
	"regexp"
	"testing"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

var (
	seed   = flag.Uint64("seed", 0, "the same victims and faults again; new if 0")
	kills  = flag.Int("kills", 8, "kill -9 of services at random moments")
	perHit = flag.Int("per-point", 1, "kills at each fault point")
	points = flag.Int("points", 2, "fault points, chosen at random; 0 for all of them")
	out    = flag.String("out", "", "file for the table")
)

func TestMain(m *testing.M) {
	flag.Parse()
	harness.MainBooted(m, harness.Boot{Provide: func(dir string) error {
		// Each of its processes comes through here with the same arguments.
		chosen := flag.Lookup("test.run").Value.String()
		if matched, err := regexp.MatchString(chosen, "TestPlugins"); err == nil && !matched {
			return nil
		}
		return buildPlugins(dir)
	}})
}
