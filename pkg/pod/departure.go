// SPDX-License-Identifier: Apache-2.0

package pod

import "time"

// KillPatience is how long the containers of a pod that its node ends may take, by the grace
// that the pod has: half as long again, ten seconds at least (a kubelet's killPodNow).
func KillPatience(grace time.Duration) time.Duration { return max(10*time.Second, grace*3/2) }

// Departure is how long an evicted pod is waited for before others are looked at: until its
// containers must have ended, and thirty seconds more for what else it has (a kubelet's
// podCleanupTimeout).
func Departure(grace time.Duration) time.Duration { return KillPatience(grace) + 30*time.Second }
