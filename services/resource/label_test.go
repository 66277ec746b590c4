// SPDX-License-Identifier: Apache-2.0

package resource

import "testing"

func TestRejectionLabel(t *testing.T) {
	for reason, want := range map[string]string{
		"OutOfcpu": "OutOfcpu", "OutOfephemeral-storage": "OutOfephemeral-storage", "Evicted": "Evicted", "SysctlForbidden": "SysctlForbidden",
		"NodeAffinity": "Other", "NodePorts": "Other", "example.com/made-up": "Other",
		"OutOfexample.com/gpu": "OutOfExtendedResources", "OutOfhugepages-2Mi": "OutOfExtendedResources",
	} {
		if got := rejectionLabel(reason); got != want {
			t.Errorf("%s is told as %s, want %s", reason, got, want)
		}
	}
}
