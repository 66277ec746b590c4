// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"strings"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
)

// TestCheckInfo: a driver whose answer the API server would refuse is not registered.
func TestCheckInfo(t *testing.T) {
	for _, tt := range []struct {
		name, driver, node, key, value, want string
	}{
		{"good", "CSI.example", "n1", "topology.example/zone", "z1", ""},
		{"longest", strings.Repeat("d", 63), strings.Repeat("n", mostNodeID), "zone", "", ""},
		{"no node", "csi.example", "", "zone", "z1", "NodeGetInfo of CSI driver csi.example: node_id is empty"},
		{"a long node", "csi.example", strings.Repeat("n", mostNodeID+1), "zone", "z1", "want at most 256 bytes"},
		{"a long name", strings.Repeat("d", 64), "n1", "zone", "z1", "want a DNS subdomain of at most 63 characters"},
		{"a path for a name", "../csi", "n1", "zone", "z1", "want a DNS subdomain of at most 63 characters"},
		{"a key that is none", "csi.example", "n1", "a/b/c", "z1", `accessible_topology: "a/b/c"`},
		{"a value that is none", "csi.example", "n1", "zone", "z 1", `accessible_topology.zone: "z 1"`},
	} {
		err := checkInfo(tt.driver, &csi.NodeGetInfoResponse{NodeId: tt.node, AccessibleTopology: &csi.Topology{Segments: map[string]string{tt.key: tt.value}}})
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
