// SPDX-License-Identifier: Apache-2.0

// Package cluster is the connection to the API server: a client made of the
// node's credential, and one way to follow resources.
//
// It owns the connections: they are made again when the credential changes, and
// the old ones are closed. It keeps nothing else. Nothing here fails because the
// API server is away, or because there is no credential yet.
package cluster
