// SPDX-License-Identifier: Apache-2.0

package pod

import "time"

// EventReminder is how often an event of a pod is repeated while its cause lasts: the
// API server forgets events after an hour, and client-go's recorder lets one about an
// object through in this time.
const EventReminder = 5 * time.Minute
