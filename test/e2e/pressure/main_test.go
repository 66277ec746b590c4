// SPDX-License-Identifier: Apache-2.0

// Package pressure_test has pods take what a node is short of, for real: the memory of the
// pods' cgroup, the bytes and inodes of a small disk under the root directory and of another
// under images and layers, and threads. The right pod goes, the others do not notice, the
// node's condition comes and goes with its times; also while resource, podworker and status
// are killed in the middle of it.
//
//	make pressure    every signal, once without kills and three times with them
package pressure_test

import (
	"flag"
	"testing"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

var (
	seed = flag.Uint64("seed", 0, "the same kills again; new if 0")
	runs = flag.Int("runs", 4, "how often each signal; the first time without kills. With -short memory and a disk, once, with kills")
	out  = flag.String("out", "", "file for the table")
)

func TestMain(m *testing.M) {
	flag.Parse()
	harness.Main(m)
}
