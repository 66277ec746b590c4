// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"time"
)

// ticks is the processor's time-stamp counter.
func ticks() uint64

// clock are the kernel parameters that make the machine trust the time-stamp counter,
// which in emulation is the host's. By itself a kernel measures it against a
// timer, wrongly on a busy host, or distrusts it and asks a slow device each time.
func clock() string {
	start, first := time.Now(), ticks()
	<-time.After(200 * time.Millisecond)
	counted, took := ticks()-first, time.Since(start)
	return fmt.Sprintf("tsc=reliable tsc_early_khz=%.0f", float64(counted)/(took.Seconds()*1000))
}
