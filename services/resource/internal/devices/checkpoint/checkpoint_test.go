// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/dump"
)

// TestTheKubeletsFile: a file that a kubelet wrote is read, checksum included, and is
// made again byte for byte.
func TestTheKubeletsFile(t *testing.T) {
	const path = "testdata/kubelet.json"
	entries, registered, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || len(entries[0].DeviceIDs[1]) != 2 || len(registered["nvidia.com/gpu"]) != 3 {
		t.Fatalf("%+v, %v", entries, registered)
	}
	answer := &pluginapi.ContainerAllocateResponse{}
	if err := proto.Unmarshal(entries[0].AllocResp, answer); err != nil || len(answer.GetDevices()) != 6 {
		t.Errorf("%v, %v", answer, err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Marshal(entries, registered); err != nil || string(got) != string(want) {
		t.Errorf("made %s, %v", got, err)
	}
}

func TestADamagedFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), Name)
	if entries, registered, err := Read(path); entries != nil || registered != nil || err != nil {
		t.Errorf("a file that is not there: %v, %v, %v", entries, registered, err)
	}
	for _, text := range []string{"", "{", `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"a/b":["1"]}},"Checksum":1}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Read(path); !errors.Is(err, errCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestText: the text of which the checksum is made is that of k8s.io/utils/dump.
func TestText(t *testing.T) {
	for seed := range uint64(2000) {
		d := someData(rand.New(rand.NewPCG(seed, 1)))
		var got text
		got.data(d)
		if want := dump.ForHash(d); string(got) != want {
			t.Fatalf("seed %d:\n%s\nwant\n%s", seed, got, want)
		}
	}
}

func someData(r *rand.Rand) (d checkpointData) {
	word := func() string { return []string{"", "a", "vendor.com/gpu", "é \n\"x", "7"}[r.IntN(5)] }
	words := func() []string {
		n := r.IntN(5)
		if n == 4 {
			return nil
		}
		all := []string{}
		for range n {
			all = append(all, word())
		}
		return all
	}
	for range r.IntN(4) {
		e := PodDevicesEntry{PodUID: word(), ContainerName: word(), ResourceName: word()}
		if r.IntN(4) > 0 {
			e.DeviceIDs = DevicesPerNUMA{}
			for range r.IntN(4) {
				e.DeviceIDs[int64(r.IntN(13)-1)] = words()
			}
			e.AllocResp = make([]byte, r.IntN(4))
			for i := range e.AllocResp {
				e.AllocResp[i] = byte(r.UintN(256))
			}
		}
		d.PodDeviceEntries = append(d.PodDeviceEntries, e)
	}
	if r.IntN(4) > 0 {
		d.RegisteredDevices = map[string][]string{}
		for range r.IntN(4) {
			d.RegisteredDevices[word()] = words()
		}
	}
	if d.PodDeviceEntries == nil && r.IntN(2) == 0 {
		d.PodDeviceEntries = []PodDevicesEntry{}
	}
	return d
}
