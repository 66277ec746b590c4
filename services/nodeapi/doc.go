// Package nodeapi is the node's face on the network: the kubelet's HTTPS API on
// port 10250 and its healthz on 10248.
//
// It owns nothing. Everything it shows it reads from the other services' feeds
// and sockets, read-only; everything it asks of the control plane (token and
// access reviews) goes through config. It holds no node credential, no
// capability and no runtime socket, and its only file is a serving certificate.
//
// It promises the kubelet's paths, answers and status codes; that every request
// but the health checks is authenticated and authorized as the configuration
// says; and that a service which is away costs its own part of an answer and
// nothing else.
//
// It comes back by listening again; there is no state to lose. A log that is
// being followed survives a restart of podworker.
package nodeapi
