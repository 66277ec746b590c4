// SPDX-License-Identifier: Apache-2.0

// Package oracle compares the decisions about CPUs, memory and NUMA nodes with those of the
// reference's own packages, on random machines and requests. Its module has the path of a
// package below services/resource, so that it may import what is internal there.
package oracle

import (
	"flag"
	"math/rand/v2"
	"testing"

	"k8s.io/klog/v2"
)

var (
	cases = flag.Int("cases", 1000, "machines with requests per property; 100000 is the long form")
	seed  = flag.Uint64("seed", 0, "of the first case; a failure names that of its own")
)

func init() {
	logs := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(logs)
	if err := logs.Set("stderrthreshold", "FATAL"); err != nil {
		panic(err)
	}
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// each runs a property on as many random cases as asked for: it returns what the product
// comes to and what the reference does, which must be the same.
func each(t *testing.T, property func(r *rand.Rand) (got, want string)) {
	t.Helper()
	failed := 0
	for i := range uint64(*cases) {
		got, want := property(rand.New(rand.NewPCG(*seed+i, 1)))
		if got == want {
			continue
		}
		t.Errorf("-seed=%d -cases=1: got\n%s\nthe reference has\n%s", *seed+i, got, want)
		if failed++; failed == 5 {
			t.FailNow()
		}
	}
}
