// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestKubeletArgs: what is left of the arguments is a kubelet's, in its order.
func TestKubeletArgs(t *testing.T) {
	own := pflag.NewFlagSet("test", pflag.ContinueOnError)
	own.StringP("output", "o", "", "")
	own.Bool("detach", false, "")
	own.String("run-dir", "", "")
	for in, want := range map[string]string{
		"":                                       "",
		"--config=x -v 2":                        "--config=x -v 2",
		"--run-dir /r --config x --detach --v=2": "--config x --v=2",
		"--run-dir=/r --detach=false -v=2":       "-v=2",
		"-o json --config x":                     "--config x",
		"-o=json --config x":                     "--config x",
		"-ojson --node-ip 1.2.3.4":               "--node-ip 1.2.3.4",
	} {
		if got := strings.Join(kubeletArgs(strings.Fields(in), own), " "); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
