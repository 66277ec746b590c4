// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"slices"

	"github.com/spf13/pflag"
)

// Release is the Kubernetes release whose kubelet is followed.
const Release = "v1.36.3"

// masked replaces values that may hold credentials.
const masked = "<masked>"

// classified flags may hold credentials.
var classified = []string{"manifest-url-header"}

// IsClassified reports whether the value of a flag may hold credentials.
func IsClassified(flag string) bool { return slices.Contains(classified, flag) }

// Saying is one flag of the command line.
type Saying struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// FlagValues returns every flag of the kubelet with its value as GET /flagz
// shows it: what the command line said, else the default. Files do not count.
func (c *Config) FlagValues() map[string]string {
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	newTarget(defaultConfiguration(false)).bind(fs)
	for _, said := range c.Flags {
		if err := fs.Set(said.Name, said.Value); err != nil {
			continue // of another release; it has been accepted once
		}
	}
	values := map[string]string{"help": "false"} // pflag's own, which the kubelet shows as well
	fs.VisitAll(func(f *pflag.Flag) {
		values[f.Name] = f.Value.String()
		if IsClassified(f.Name) && f.Changed {
			values[f.Name] = masked
		}
	})
	return values
}
