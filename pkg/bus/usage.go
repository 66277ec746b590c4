// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bus

import (
	_ "unsafe" // go:linkname
)

// statFile is where the NATS server's package pse reads the use of processor time each
// second, in every process that it is linked into, for a monitoring page that is not
// served. It stops when there is nothing to read; nothing else makes it stop.
//
//go:linkname statFile github.com/nats-io/nats-server/v2/server/pse.procStatFile
var statFile string

func init() { statFile = "" }
