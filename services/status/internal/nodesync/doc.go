// SPDX-License-Identifier: Apache-2.0

// Package nodesync registers the Node and keeps its status at the API server true.
//
// The status is rendered (package nodestatus) when a fact changes and once a period,
// and written when it says something new or the report period is over. What the API
// server accepted and does not show (it knows no such field, or a webhook changes it) is
// not new: it goes with each report. Registration
// creates the Node or, where it exists, puts its labels and annotations right.
//
// It keeps the Node as the API server answered last; what config reads of it
// later replaces that by resourceVersion. After kill -9 it registers again, which
// reads the Node, and writes nothing that is there already. Nothing waits for it: the
// Lease is renewed elsewhere.
//
// A Node that others delete stays deleted until then. One that they make in its place is
// kept like the former, as with a kubelet, which reads the Node before each write: it is
// read once a period while there is none, and when config lists another one.
package nodesync
