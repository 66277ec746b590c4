// SPDX-License-Identifier: Apache-2.0

// Package identity holds who the node is at the API server.
//
// It owns the client certificate, in a folder that no other uid may enter (house.CertDir):
// it asks for the first one with the bootstrap kubeconfig, renews it, and asks again
// when it is of no use any more, all as the kubelet does and in the kubelet's files. A
// kubeconfig that carries its own certificate, a token or a plugin is used as it
// is; see package renewal for what is decided when.
//
// It promises that users of the credential are notified of a change and that
// nothing here needs a restart: an expired certificate, a clock that jumped and
// an API server that was away are found out by looking again, at least every ten
// seconds, and asking again, at least every thirty.
//
// It comes back from its files: the key of a request that was under way is kept
// (kubelet-client.key.tmp), so the same request is found at the API server.
package identity
