// Package nodeapi is the node's face on the network: the kubelet's HTTPS API on
// port 10250 and its healthz on 10248.
//
// It owns nothing. Everything it shows it reads from the other services' feeds
// and sockets, read-only; everything it asks of the control plane (token and
// access reviews) goes through config. It holds no node credential, no
// capability and no runtime socket, and its only files are its serving certificate
// and key. A certificate that the API server signs is asked for through config,
// with a key that no other process sees; the files of the configuration come from
// config too.
//
// It promises the kubelet's paths, answers and status codes (where they differ:
// docs/decisions/0009); that whatever is to be had on the HTTPS port is had only
// by those whom the configuration lets in; that callers who misbehave cost nobody
// else an answer; and that a service which is away costs its own part of an
// answer and nothing else.
//
// It comes back by listening again, on sockets it was started with where somebody
// holds them open meanwhile; there is no state to lose. A log that is
// being followed survives a restart of podworker.
package nodeapi
