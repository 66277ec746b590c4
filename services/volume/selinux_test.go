// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestHostLabel(t *testing.T) {
	o := &v1.SELinuxOptions{User: "u", Type: "t", Level: "s0:c1,c2"}
	if got := labelOptions(o); !slices.Equal(got, []string{"user:u", "type:t", "level:s0:c1,c2"}) {
		t.Errorf("options %q", got)
	}
	for _, o := range []*v1.SELinuxOptions{nil, {Type: "t"}} {
		if got, err := hostLabel(o); got != "" || err != nil {
			t.Errorf("%v: %q, %v", o, got, err)
		}
	}
	_, absent := os.Stat("/sys/fs/selinux/enforce")
	if got, err := hostLabel(&v1.SELinuxOptions{Level: "s0:c1,c2"}); err != nil || (got == "") != (absent != nil) {
		t.Errorf("%q, %v; no SELinux: %v", got, err, absent)
	}
}
