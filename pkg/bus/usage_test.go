// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bus

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server/pse"
)

// TestNobodyReadsTheProcessorTime: a service at rest is not woken each second.
func TestNobodyReadsTheProcessorTime(t *testing.T) {
	var cpu float64
	var resident, virtual int64
	if err := pse.ProcUsage(&cpu, &resident, &virtual); err == nil {
		t.Error("the NATS server still finds where to read it")
	}
}
