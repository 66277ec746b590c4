// SPDX-License-Identifier: Apache-2.0

//go:build !race

// Bytes are counted, of which the race detector makes more.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/house"
)

// atStart is what packages may allocate before main, in KiB: those with more than most. Every
// process of the node pays for it. What runs beside is counted with it, so there is room of a fifth.
var atStart = map[string]float64{
	"k8s.io/client-go/kubernetes/scheme":                        790,
	"github.com/distribution/reference":                         530,
	"github.com/container-storage-interface/spec/lib/go/csi":    440,
	"k8s.io/component-base/metrics/legacyregistry":              260,
	"k8s.io/cri-api/pkg/apis/runtime/v1":                        290,
	"github.com/nats-io/nats-server/v2/server":                  230,
	"google.golang.org/protobuf/reflect/protodesc":              220,
	"golang.org/x/net/html":                                     140,
	"sigs.k8s.io/structured-merge-diff/v6/typed":                130,
	"github.com/prometheus/procfs":                              130,
	"github.com/google/gnostic-models/openapiv3":                130,
	"github.com/opencontainers/go-digest":                       120,
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1":              120,
	"k8s.io/kubelet/pkg/apis/dra/v1":                            120,
	"github.com/google/gnostic-models/openapiv2":                100,
	"github.com/sextant-node/sextant/proto/sextant/resource/v1": 100,
	"k8s.io/api/core/v1":                                        130,
}

// most is what any other package may, in KiB.
const most = 80

var initialised = regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) bytes, \d+ allocs$`)

// TestPackagesAtStart: no package prepares more before main than it does today, whatever
// becomes linked in.
func TestPackagesAtStart(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out)) // the test's own packages are not the program's
	cmd = exec.Command(os.Args[0], "--version")
	cmd.Env = append(os.Environ(), program+"=1", "GODEBUG=inittrace=1")
	out, err = cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sum := 0.0
	for _, line := range initialised.FindAllStringSubmatch(string(out), -1) {
		name := line[1]
		if !slices.Contains(linked, name) {
			continue
		}
		bytes, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += bytes / 1024
		if bound := max(atStart[name], most); bytes/1024 > bound {
			t.Errorf("%s allocates %.0f KiB before main, in each process: at most %.0f", name, bytes/1024, bound)
		}
	}
	if sum < 2000 || sum > 5200 {
		t.Errorf("packages allocate %.0f KiB before main: at most 5200, and not less than those known do", sum)
	}
	t.Logf("packages allocate %.0f KiB before main", sum)
}

// live is what a service may have in use, in KiB, at rest with the pods of TestLive.
// They vary by a fiftieth; the bounds are a twelfth above.
var live = map[house.Service]float64{
	house.Bus: 4150, house.PodWorker: 8000, house.Config: 6250, house.Pleg: 4750, house.Prober: 4950,
	house.Volume: 4900, house.Resource: 5350, house.Status: 8650, house.NodeAPI: 5300,
}

// TestLive: what each service keeps for itself and for 60 pods.
func TestLive(t *testing.T) {
	n := startNode(t)
	names := make([]string, 60)
	for i := range names {
		names[i] = fmt.Sprintf("p-%d", i)
	}
	n.begin(names)
	n.rest()
	for _, s := range house.Services() {
		got := n.inUse(s)
		t.Logf("%s: %.0f KiB", s, got)
		if bound := live[s]; got > bound {
			t.Errorf("%s has %.0f KiB in use, at most %.0f", s, got, bound)
		}
	}
}

// inUse is what a service has in use after garbage was collected, in KiB. What pools hold is
// collected the second time.
func (n *wholeNode) inUse(s house.Service) float64 {
	n.Helper()
	n.debug(s, "/debug/pprof/heap?gc=1&debug=1")
	for line := range strings.Lines(string(n.debug(s, "/debug/pprof/heap?gc=1&debug=1"))) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "# HeapAlloc = "); ok {
			bytes, err := strconv.ParseFloat(value, 64)
			if err != nil {
				n.Fatal(err)
			}
			return bytes / 1024
		}
	}
	n.Fatal("no account of the heap of", s)
	return 0
}
