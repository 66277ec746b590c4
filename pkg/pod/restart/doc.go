// SPDX-License-Identifier: Apache-2.0

// Package restart decides whether a container that ended runs again, and how long to
// wait before it does.
//
// Decide is a pure function of the pod's specification and the last exit. Backoff is a
// value: the caller keeps it, in memory and in its journal (it is plain JSON), so a
// back-off survives the process that imposed it.
package restart
