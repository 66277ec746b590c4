// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// TestTheKubeletsFile: a file that a kubelet wrote is read, checksum included, and is
// written again byte for byte.
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
	again := filepath.Join(t.TempDir(), Name)
	if err := Write(again, entries, registered); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(again); err != nil || string(got) != string(want) {
		t.Errorf("wrote %s, %v", got, err)
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
