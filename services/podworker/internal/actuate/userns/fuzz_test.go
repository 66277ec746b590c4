// SPDX-License-Identifier: Apache-2.0

package userns

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzParseRecord: no record makes ids of the node's own a pod's.
func FuzzParseRecord(f *testing.F) {
	for _, s := range []string{
		`{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`,
		`{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`,
		`{"uidMappings":[{"hostId":4294901760,"length":131072}],"gidMappings":[{"hostId":4294901760,"length":131072}]}`,
		`{"uidMappings":[{"hostId":65536,"length":65536},{"hostId":0,"length":1}],"gidMappings":[{"hostId":65536,"length":65536}]}`,
		`{}`, `null`, `{"uidMappings":[{}],"gidMappings":[{}]}`, ``, `{"uidMappings":[{"hostId":-1}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r record
		var err error
		fuzzing.Allocates(t, 512<<10+100*uint64(len(data)), func() {
			fuzzing.Spends(t, time.Second, func() { r, err = parseRecord(data) })
		})
		if err != nil {
			if len(r.UIDs) > 0 || len(err.Error()) > 200 {
				t.Errorf("%v, %v", r, err)
			}
			return
		}
		ns := namespace(r)
		if len(ns.GetUids()) != 1 || len(ns.GetGids()) != 1 {
			t.Fatal(ns)
		}
		for _, m := range append(ns.GetUids(), ns.GetGids()...) {
			if m.GetContainerId() != 0 || m.GetHostId() < 65536 || m.GetLength() < 65536 || uint64(m.GetHostId())+uint64(m.GetLength()) > 1<<32 {
				t.Errorf("%q maps %v", data, m)
			}
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseRecord(written); err != nil || again.UIDs[0] != r.UIDs[0] {
			t.Errorf("%v became %v, %v", r, again, err)
		}
	})
}

// FuzzParse: of what getsubids prints, a range within 32 bits or a short error.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0: kubelet 65536 2147483648\n", "", "0: kubelet 1 2\n1: kubelet 3 4", "0: kubelet 4294967295 4294967295", "0: kubelet 65536 0", "0: kubelet x 2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, output string) {
		var r Range
		var err error
		fuzzing.Allocates(t, 512<<10+100*uint64(len(output)), func() {
			fuzzing.Spends(t, time.Second, func() { r, err = parse(output) })
		})
		switch {
		case err != nil && (r != (Range{}) || len(err.Error()) > 2048):
			t.Errorf("%v, an error of %d bytes", r, len(err.Error()))
		case err == nil && uint64(r.First)+uint64(r.Length) > 1<<32:
			t.Errorf("%q gave %v", output, r)
		}
		block, err := free(r, unit, []Range{{unit, unit}}, lowest)
		if err == nil && (block.First < r.First || uint64(block.First)+unit > uint64(r.First)+uint64(r.Length) || block.First == unit) {
			t.Errorf("%v of %v", block, r)
		}
	})
}
