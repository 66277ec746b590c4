// SPDX-License-Identifier: Apache-2.0

// Package nodeapi is the kubelet's HTTPS API on port 10250 and its healthz on 10248.
//
// It owns nothing but its serving certificate. What it shows it reads from feeds and
// sockets of the other services; what it asks of the API server goes through config. It
// has no node credential, no capability and no connection to the runtime.
//
// It promises the kubelet's paths, answers and status codes (docs/decisions/0009 has the
// differences); that callers who are not authorized cost other callers no answer (package
// listen has the bounds); and that a service that is away costs its own part of an answer.
//
// It comes back by listening again, on sockets that another process holds where there are
// any. A log that is followed survives a restart of podworker.
package nodeapi
