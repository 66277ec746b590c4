// SPDX-License-Identifier: Apache-2.0

// Package check judges a node that a kubelet runs before Sextant takes its place.
//
// It owns the judgement of `sextant check`. [Gather] reads the node and changes nothing;
// [Judge] is pure, so that a judgement can be had again from a file of [Facts]. What could
// not be read is a finding too: nothing counts as well that was not looked at. The package
// keeps nothing.
package check
