// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Files that a kubelet 1.36.3 wrote.
const (
	kubeletFile = `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"u1\",\"ClaimName\":\"gpu\",\"Namespace\":\"ns\",\"PodUIDs\":{\"p1\":{},\"p2\":{}},\"DriverState\":{\"a.example\":{\"Devices\":[{\"PoolName\":\"pool\",\"DeviceName\":\"d0\",\"ShareID\":\"share-1\",\"RequestNames\":[\"r\\u003c1\\u003e\"],\"CDIDeviceIDs\":[\"a.example/device=d0\"]}]},\"b.example\":{\"Devices\":null}}}]}","Checksum":2491540184}`
	emptyFile   = `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":null}","Checksum":4010664294}`
)

func TestTheKubeletsFile(t *testing.T) {
	share := types.UID("share-1")
	want := map[string]*Claim{"ns/gpu": {
		UID: "u1", Namespace: "ns", Name: "gpu", Pods: []string{"p1", "p2"},
		Drivers: map[string]Driver{
			"a.example": {Stage: unsure, Devices: []Device{{
				PoolName: "pool", DeviceName: "d0", ShareID: &share, RequestNames: []string{"r<1>"}, CDIDeviceIDs: []string{"a.example/device=d0"},
			}}},
			"b.example": {Stage: unsure},
		},
	}}
	for text, want := range map[string]map[string]*Claim{kubeletFile: want, emptyFile: {}} {
		got, sum, err := decode([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("read: %+v, %v", got, err)
		}
		if again, newSum, err := encode(want); err != nil || string(again) != text || newSum != sum {
			t.Errorf("written, %v:\n%s\nwant\n%s", err, again, text)
		}
	}
}

func TestADamagedFile(t *testing.T) {
	for _, text := range []string{"", "{}}", `{"Data":"x","Checksum":7}`, strings.Replace(kubeletFile, "u1", "u2", 1), `{"Data":"[]","Checksum":223132457}`} {
		if got, _, err := decode([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if _, _, err := decode([]byte(strings.Replace(kubeletFile, "u1", "u2", 1))); !errors.Is(err, errCorrupt) {
		t.Errorf("%v", err)
	}
}

// FuzzDecode: of any bytes, claims that are written and read as the same again, or an error.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{kubeletFile, emptyFile, "{}", ""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		claims, _, err := decode(text)
		if err != nil {
			return
		}
		written, _, err := encode(claims)
		if err != nil {
			t.Fatal(err)
		}
		if again, _, err := decode(written); err != nil || len(again) != len(claims) {
			t.Errorf("%d claims, then %d: %v", len(claims), len(again), err)
		}
	})
}
