// SPDX-License-Identifier: Apache-2.0

// Package netfile makes what a pod reads about names: its /etc/hosts, its DNS settings
// and its hostname. It is pure: text in, text out; the caller reads and writes the
// files.
package netfile
