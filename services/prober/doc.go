// SPDX-License-Identifier: Apache-2.0

// Package prober runs liveness, readiness and startup probes.
//
// It owns the verdicts (feed prober.verdicts): one result per pod, container id
// and kind, after the probe's thresholds. It never acts on them: podworker
// restarts, status reports.
//
// It promises that a verdict belongs to the container id it carries; that a
// probe which never reached its container (the runtime or the broker is away)
// decides nothing; that the first probe runs when its initial delay is over,
// not a period later; that probes are spread over their period, in one timer heap,
// without a goroutine that waits for each; and that no pod's probe waits for another
// pod's, however long that takes (package turns).
//
// After a restart it has its former verdicts: they are on disk before they are
// published, and are valid for as long as the container id is the same. A restart of
// prober therefore changes no verdict, and causes no burst.
package prober
