// SPDX-License-Identifier: Apache-2.0

// Package credential is the node's kubeconfig: read with the files it names,
// made self-contained, joined with a certificate, and written the way the
// kubelet writes it after a TLS bootstrap.
//
// It owns no state and opens no connection. What it reads it reads when it is
// asked to; who keeps a credential current is config (services/config).
package credential
