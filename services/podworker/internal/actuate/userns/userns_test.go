// SPDX-License-Identifier: Apache-2.0

package userns

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
			got, err := free(all, 65536, tc.taken, lowest)
			if got.First != tc.want || (err == nil) != (tc.want != 0) {
				t.Errorf("got %v, %v; want %d", got, err, tc.want)
			}
		})
	}
	if got, err := free(all, 65536, []Range{{3 * 65536, 65536}}, highest); err != nil || got.First != 2*65536 {
		t.Errorf("from the upper end: %v, %v", got, err)
	}
	if _, err := free(all, 0, nil, lowest); err == nil {
		t.Error("a range of nothing was found")
	}
	if got, err := free(Range{100, 200000}, 65536, nil, lowest); err != nil || got.First != 65536 {
		t.Errorf("not aligned: %v, %v", got, err)
	}
	if got, err := free(Range{65536, ^uint32(0) - 65535}, 65536, []Range{{65536, ^uint32(0) - 2*65536 + 1}}, lowest); err != nil || got.First != ^uint32(0)-65535 {
		t.Errorf("the last block: %v, %v", got, err)
	}
}

func TestManager(t *testing.T) {
	layout := pod.Layout{Root: t.TempDir()}
	fresh := func() *Manager {
		m := New(layout, func(context.Context, types.UID) (*runtimeapi.UserNamespace, error) {
			return nil, errors.New("not asked")
		}, slog.New(slog.DiscardHandler))
		m.ids = func() (Range, error) { return Range{}, nil }
		return m
	}
	m := fresh()
	first := map[types.UID]uint32{}
	for _, uid := range []types.UID{"a", "b"} {
		if err := os.MkdirAll(layout.Pod(uid), 0o750); err != nil {
			t.Fatal(err)
		}
		ns, err := m.Get(t.Context(), uid, 65536)
		if err != nil {
			t.Fatal(err)
		}
		first[uid] = ns.GetUids()[0].GetHostId()
	}
	if first["a"] != 65536 || first["b"] != 2*65536 {
		t.Errorf("ranges %v", first)
	}
	// After a kill the files tell.
	ns, err := fresh().Get(t.Context(), "b", 65536)
	if err != nil || ns.GetGids()[0].GetHostId() != first["b"] {
		t.Errorf("after a restart: %v, %v", ns, err)
	}
	if err := os.RemoveAll(layout.Pod("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(layout.Pod("c"), 0o750); err != nil {
		t.Fatal(err)
	}
	if ns, err := m.Get(t.Context(), "c", 65536); err != nil || ns.GetUids()[0].GetHostId() != first["a"] {
		t.Errorf("a range given back was not found: %v, %v", ns, err)
	}
}

// TestUnreadableRecords: a record that cannot be read refuses no pod, neither its own nor
// another, and the range of what runs is given to no other pod.
func TestUnreadableRecords(t *testing.T) {
	const size = 65536
	for _, damage := range []string{"", "{", "{}", `{"uidMappings":[{"hostId":-1}]}`} {
		for name, c := range map[string]struct {
			sandbox    *runtimeapi.UserNamespace
			err        error
			other, own uint32 // the first ids of another pod, and then of the one of the record
		}{
			"running":     {&runtimeapi.UserNamespace{Uids: oneRange(size), Gids: oneRange(size)}, nil, 2 * size, size},
			"not running": {nil, nil, size, 2 * size},
			"not known":   {nil, errors.New("runtime"), 4 * size, 3 * size},
		} {
			layout := pod.Layout{Root: t.TempDir()}
			m := New(layout, func(_ context.Context, uid types.UID) (*runtimeapi.UserNamespace, error) {
				if uid != "damaged" {
					t.Errorf("the runtime is asked for %s", uid)
				}
				return c.sandbox, c.err
			}, slog.New(slog.DiscardHandler))
			m.ids = func() (Range, error) { return Range{First: size, Length: 4 * size}, nil }
			for _, uid := range []types.UID{"damaged", "new"} {
				if err := os.MkdirAll(layout.Pod(uid), 0o750); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(layout.UserNamespace("damaged"), []byte(damage), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, want := range []struct {
				uid   types.UID
				first uint32
			}{{"new", c.other}, {"damaged", c.own}, {"damaged", c.own}} {
				ns, err := m.Get(t.Context(), want.uid, size)
				if err != nil || ns.GetUids()[0].GetHostId() != want.first || ns.GetGids()[0].GetLength() != size {
					t.Errorf("%q, %s: %s has %v, %v; want %d", damage, name, want.uid, ns, err, want.first)
				}
			}
			if _, err := m.read("damaged"); err != nil {
				t.Errorf("%q, %s: the record is as it was: %v", damage, name, err)
			}
		}
	}
}

func oneRange(first uint32) []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: first, Length: 65536}}
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
