// SPDX-License-Identifier: Apache-2.0

// Package nodev1 is what every service says of itself: who it is, which protocol
// it speaks, and how it fares. Generated from node.proto.
package nodev1
