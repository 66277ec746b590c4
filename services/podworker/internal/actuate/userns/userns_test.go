package userns

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

func TestFree(t *testing.T) {
	all := Range{First: 65536, Length: 3 * 65536}
	for _, tc := range []struct {
		name  string
		taken []Range
		want  uint32 // 0: none left
	}{
		{"first", nil, 65536},
		{"next", []Range{{65536, 65536}}, 2 * 65536},
		{"gap", []Range{{65536, 65536}, {3 * 65536, 65536}}, 2 * 65536},
		{"partly taken", []Range{{65536 + 10, 1}}, 2 * 65536},
		{"full", []Range{{0, 1 << 31}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Free(all, 65536, tc.taken)
			if got.First != tc.want || (err == nil) != (tc.want != 0) {
				t.Errorf("got %v, %v; want %d", got, err, tc.want)
			}
		})
	}
	if _, err := Free(all, 0, nil); err == nil {
		t.Error("a range of nothing was found")
	}
	if got, err := Free(Range{100, 200000}, 65536, nil); err != nil || got.First != 65536 {
		t.Errorf("not aligned: %v, %v", got, err)
	}
	if got, err := Free(Range{65536, ^uint32(0) - 65535}, 65536, []Range{{65536, ^uint32(0) - 2*65536 + 1}}); err != nil || got.First != ^uint32(0)-65535 {
		t.Errorf("the last block: %v, %v", got, err)
	}
}

func TestManager(t *testing.T) {
	layout := pod.Layout{Root: t.TempDir()}
	fresh := func() *Manager {
		m := New(layout)
		m.ids = func() (Range, error) { return Range{}, nil }
		return m
	}
	m := fresh()
	first := map[types.UID]uint32{}
	for _, uid := range []types.UID{"a", "b"} {
		if err := os.MkdirAll(layout.Pod(uid), 0o750); err != nil {
			t.Fatal(err)
		}
		ns, err := m.Get(uid, 65536)
		if err != nil {
			t.Fatal(err)
		}
		first[uid] = ns.GetUids()[0].GetHostId()
	}
	if first["a"] != 65536 || first["b"] != 2*65536 {
		t.Errorf("ranges %v", first)
	}
	// After a kill the files tell.
	ns, err := fresh().Get("b", 65536)
	if err != nil || ns.GetGids()[0].GetHostId() != first["b"] {
		t.Errorf("after a restart: %v, %v", ns, err)
	}
	if err := os.RemoveAll(layout.Pod("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(layout.Pod("c"), 0o750); err != nil {
		t.Fatal(err)
	}
	if ns, err := m.Get("c", 65536); err != nil || ns.GetUids()[0].GetHostId() != first["a"] {
		t.Errorf("a range given back was not found: %v, %v", ns, err)
	}
	if err := os.WriteFile(layout.UserNamespace("c"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get("c", 65536); err == nil {
		t.Error("a damaged record was overlooked")
	}
}

func TestParse(t *testing.T) {
	if got, err := parse("0: kubelet 65536 2147483648\n"); err != nil || got != (Range{65536, 2147483648}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "0: kubelet 65536", "0: kubelet 1 2\n1: kubelet 3 4", "0: kubelet x 2", "0: kubelet 1 -2"} {
		if got, err := parse(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}
