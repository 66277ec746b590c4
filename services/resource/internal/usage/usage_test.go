// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/testing/protocmp"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/usage"
)

// texts is a cgroup of an archive: on version 1 its files are named with their
// controller.
type texts struct {
	version uint32
	files   map[string][]byte
}

func (f texts) Read(controller, file string) ([]byte, bool) {
	if f.version == 1 {
		file = controller + "/" + file
	}
	text, ok := f.files[file]
	return text, ok
}

func TestRead(t *testing.T) {
	archives, err := filepath.Glob("testdata/v*.txtar")
	if err != nil || len(archives) < 4 {
		t.Fatal(archives, err)
	}
	for _, path := range archives {
		t.Run(filepath.Base(path), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			src := texts{version: 2, files: map[string][]byte{}}
			if strings.HasPrefix(filepath.Base(path), "v1") {
				src.version = 1
			}
			for _, f := range archive.Files {
				src.files[f.Name] = f.Data
			}
			want := &resourcev1.CgroupUsage{}
			if err := prototext.Unmarshal(src.files["want"], want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, usage.Read(src, src.version), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRates(t *testing.T) {
	r, start := usage.NewRates(), time.Unix(1000, 0)
	second := uint64(time.Second)
	at := func(after time.Duration, used uint64) uint64 {
		t.Helper()
		rate := r.Rate("/a", used, start.Add(after))
		if rate == nil {
			return 1 << 63
		}
		return *rate
	}
	const none = 1 << 63
	for _, step := range []struct {
		what  string
		after time.Duration
		used  uint64
		want  uint64
	}{
		{"the first has none before it", 0, 10 * second, none},
		{"too soon to tell", 500 * time.Millisecond, 11 * second, none},
		{"half a core", 2 * time.Second, 11 * second, second / 2},
		{"too soon is what was", 2*time.Second + 1, 12 * second, 4 * second / 4},
		{"since the first one still", 10 * time.Second, 20 * second, second},
		{"since the one before", 12 * time.Second, 24 * second, 2 * second},
		{"made anew", 13 * time.Second, 1, none},
	} {
		if got := at(step.after, step.used); got != step.want && !near(got, step.want) {
			t.Errorf("%s: %d, want %d", step.what, got, step.want)
		}
	}
	r.Sweep(start.Add(time.Hour))
	if got := at(time.Hour+time.Second, 2*second); got != none {
		t.Errorf("after an hour unseen: %d", got)
	}
}

func near(a, b uint64) bool { return a > b-b/100 && a < b+b/100 }

func TestParseInterfaces(t *testing.T) {
	text := `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1    1    0    0    0     0          0         0   1    1    0    0    0     0       0          0
  eth0:  100   10    1    2    0     0          0         0   200   20   3    4    0     0       0          0
vethabc: 5     5     5    5    5     5          5         5   5     5    5    5    5     5       5          5
`
	want := []*resourcev1.NetworkInterface{{
		Name: "eth0", RxBytes: 100, RxPackets: 10, RxErrors: 1, RxDropped: 2, TxBytes: 200, TxPackets: 20, TxErrors: 3, TxDropped: 4,
	}}
	if diff := cmp.Diff(want, usage.ParseInterfaces([]byte(text)), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestContainerID(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for folder, want := range map[string]string{
		id: id, "cri-containerd-" + id + ".scope": id, "crio-" + id + ".scope": id,
		"crio-conmon-" + id + ".scope": "", "init": "", "podabc": "", "a.scope": "", strings.Repeat("x", 64): "",
	} {
		if got, ok := usage.ContainerID(folder); got != want || ok != (want != "") {
			t.Errorf("%s: %q %v", folder, got, ok)
		}
	}
}

func TestParseOpenFilesLimit(t *testing.T) {
	text := "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             unlimited            unlimited            processes \n"
	for line, want := range map[string]int64{
		"Max open files            1024                 524288               files     \n": 1024,
		"Max open files            unlimited            unlimited            files     \n": -1,
	} {
		if got, ok := usage.ParseOpenFilesLimit([]byte(text + line)); got != want || !ok {
			t.Errorf("%q: %d %v", line, got, ok)
		}
	}
	if _, ok := usage.ParseOpenFilesLimit([]byte(text)); ok {
		t.Error("a limit that is not told")
	}
}

func TestRoot(t *testing.T) {
	meminfo := map[string]int64{"MemTotal": 1000, "MemFree": 300, "SwapTotal": 50, "SwapFree": 20, "Inactive(file)": 100}
	got := usage.Root(&resourcev1.MemoryUsage{InactiveFile: 200, Rss: 5, Cache: 600}, meminfo)
	if got.GetUsage() != 605 || got.GetWorkingSet() != 405 || got.GetSwap() != 30 || got.GetLimit() != 1000 || got.GetRss() != 5 {
		t.Error(got)
	}
	if got := usage.Root(nil, meminfo); got.GetWorkingSet() != 600 {
		t.Error(got)
	}
}

func TestParseNodeCPU(t *testing.T) {
	got, ok := usage.ParseNodeCPU([]byte("cpu  100 1 50 9999 888 2 3 0 0 0\ncpu0 1 1 1 1 1 1 1\n"))
	if !ok || got.GetUser() != 1010000000 || got.GetSystem() != 550000000 || got.GetUsage() != 1560000000 {
		t.Error(got, ok)
	}
}
