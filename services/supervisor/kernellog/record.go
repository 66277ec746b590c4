// SPDX-License-Identifier: Apache-2.0

package kernellog

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// maxText is how much of a line is considered, in bytes; the kernel's are shorter.
const maxText = 8 << 10

// Record is one line of the kernel's log (Documentation/ABI/testing/dev-kmsg).
type Record struct {
	// Sequence counts lines from the boot of the machine.
	Sequence uint64
	// Since is when it was written, on the kernel's clock, which begins with the boot
	// and stands still while the machine sleeps.
	Since time.Duration
	// Kernel: the kernel wrote it. What processes write has another facility.
	Kernel bool
	Text   string
}

var errRecord = errors.New("not a line of the kernel's log")

// ParseRecord reads "<priority>,<sequence>,<microseconds>,<flags>[,...];<text>", and
// leaves out the properties in the lines after it.
func ParseRecord(line []byte) (Record, error) {
	head, text, ok := strings.Cut(string(line[:min(len(line), maxText)]), ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 3 {
		return Record{}, errRecord
	}
	priority, err1 := strconv.ParseUint(fields[0], 10, 32)
	sequence, err2 := strconv.ParseUint(fields[1], 10, 64)
	since, err3 := strconv.ParseUint(fields[2], 10, 53)
	if errors.Join(err1, err2, err3) != nil {
		return Record{}, errRecord
	}
	text, _, _ = strings.Cut(text, "\n")
	return Record{Sequence: sequence, Since: time.Duration(since) * time.Microsecond, Kernel: priority>>3 == 0, Text: text}, nil
}
