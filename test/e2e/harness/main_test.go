// SPDX-License-Identifier: Apache-2.0

package harness_test

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// dialEnv makes the test binary a client that connects to the socket it names
// and holds the connection until its input ends.
const dialEnv = "HARNESS_TEST_DIAL"

func TestMain(m *testing.M) {
	if socket := os.Getenv(dialEnv); socket != "" {
		if _, err := net.Dial("unix", socket); err != nil {
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	harness.Main(m)
}
