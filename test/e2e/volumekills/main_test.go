// SPDX-License-Identifier: Apache-2.0

// Package volumekills_test kills volume and podworker under pods with every kind of
// volume, and looks at each mount and at what each volume holds.
//
//	make volume-kills    200 kills, about half an hour
package volumekills_test

import (
	"flag"
	"testing"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

var seed = flag.Uint64("seed", 0, "the same victims and weather again; new if 0")

func TestMain(m *testing.M) {
	flag.Parse()
	harness.Main(m)
}
