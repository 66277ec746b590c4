// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// resourceExhausted is the code of gRPC by which an attacher says that there is no room.
const resourceExhausted int32 = 8

// Exhausted is why a volume is not attached: the node has no room for another one, as the
// attacher said.
type Exhausted struct{ Driver, Message string }

func (e *Exhausted) Error() string { return e.Message }

// exhausted is the answer of the attacher that the node has no room for the volume; nil
// where it has not said so, or where the driver of that name does not want limits read again
// (KEP-4876).
func exhausted(name, attachment string, o Objects) *Exhausted {
	driver, err := o.Driver(name)
	if err == nil && UpdatePeriod(driver) != 0 {
		a, err := o.Attachment(attachment)
		if err == nil && a.Status.AttachError != nil && a.Status.AttachError.ErrorCode != nil && *a.Status.AttachError.ErrorCode == resourceExhausted {
			return &Exhausted{Driver: name, Message: a.Status.AttachError.Message}
		}
	}
	return nil
}

// UpdatePeriod is how often a driver wants to be asked for its limits; 0 for never. driver
// may be nil.
func UpdatePeriod(driver *storagev1.CSIDriver) time.Duration {
	if driver == nil || driver.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return pod.Seconds(*driver.Spec.NodeAllocatableUpdatePeriodSeconds)
}

// idle is how long nothing is due while no driver wants to be asked.
const idle = 10 * time.Minute

// Due are the drivers to ask for their limits now, and how long there is none. periods are
// those of the drivers there are. asked has when each was asked last, and is kept up to
// date; a driver that is new is asked after its period.
func Due(now time.Time, periods map[string]time.Duration, asked map[string]time.Time) (due []string, wait time.Duration) {
	wait = idle
	for name := range asked {
		if _, wanted := periods[name]; !wanted {
			delete(asked, name)
		}
	}
	for name, period := range periods {
		last, known := asked[name]
		if !known {
			last = now
			asked[name] = now
		}
		left := last.Add(period).Sub(now)
		if left <= 0 {
			due, left = append(due, name), period
			asked[name] = now
		}
		wait = min(wait, left)
	}
	slices.Sort(due)
	return due, wait
}
