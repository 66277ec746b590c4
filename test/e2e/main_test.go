// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// kinds chooses the kinds of node to test: a runtime, and whether there is a bus. The
// two have each of either; the other pairs are tested by hand.
var kinds = flag.String("kinds", "debian-nobus,v2-bus", "kinds of node, separated by commas: debian|v1.7|v2, - , bus|nobus")

// parallel is how many tests run at once: they wait more than they work, but where a page
// fault is dear, as in some virtual machines, twenty starts of runc at once take minutes.
const parallel = "10"

func TestMain(m *testing.M) {
	if target := os.Getenv(strangerEnv); target != "" {
		if err := stranger(target); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	harness.Main(m)
}
