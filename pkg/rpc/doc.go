// SPDX-License-Identifier: Apache-2.0

// Package rpc is gRPC between processes of one node: Unix sockets, peers known
// by their socket credentials, one set of interceptors on both sides, and one
// translation each way between errors and codes.
//
// A server refuses a uid that is not in the identities table during the
// handshake, and a method that pkg/house does not grant to the caller before
// the handler runs. A client dials lazily and for ever: a peer that is not there
// yet, or died, is an Unavailable error, never a reason to exit. The package
// keeps no state; after a kill both sides simply dial and listen again.
package rpc
