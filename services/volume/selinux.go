// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	v1 "k8s.io/api/core/v1"
)

// hostLabel is the label of files for processes with these options by the policy of this
// node. It is empty without SELinux, and without a level: the runtime chooses one then.
func hostLabel(o *v1.SELinuxOptions) (string, error) {
	if o == nil || o.Level == "" {
		return "", nil
	}
	process, files, err := label.InitLabels(labelOptions(o))
	if err != nil {
		return "", err
	}
	selinux.ReleaseLabel(process) // it was reserved for a process; this is about its files only
	return files, nil
}

func labelOptions(o *v1.SELinuxOptions) []string {
	var options []string
	for _, field := range []struct{ key, value string }{{"user", o.User}, {"role", o.Role}, {"type", o.Type}, {"level", o.Level}} {
		if field.value != "" {
			options = append(options, field.key+":"+field.value)
		}
	}
	return options
}
