// SPDX-License-Identifier: Apache-2.0

// Package oracle compares the decisions about CPUs, memory and NUMA nodes with those of the
// reference's own packages, on random machines and requests, and what is a pod among
// manifests. Its module has the path of a package below services/resource, so that it may
// import what is internal there.
package oracle

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
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

// mostFailures is how many cases may fail before the rest is not tried any more.
const mostFailures = 5

// each runs a property on as many random cases as asked for, on all processors: it returns
// what the product comes to and what the reference does, which must be the same. dir is for
// the files of one case at a time.
func each(t *testing.T, property func(r *rand.Rand, dir string) (got, want string)) {
	t.Helper()
	var begun, failed atomic.Uint64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		dir := t.TempDir()
		workers.Go(func() {
			for failed.Load() < mostFailures {
				i := begun.Add(1) - 1
				if i >= uint64(*cases) {
					return
				}
				got, want := property(rand.New(rand.NewPCG(*seed+i, 1)), dir)
				if got != want {
					failed.Add(1)
					t.Errorf("-seed=%d -cases=1: got\n%s\nthe reference has\n%s", *seed+i, got, want)
				}
			}
		})
	}
	workers.Wait()
}
