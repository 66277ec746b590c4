// SPDX-License-Identifier: Apache-2.0

// Package gather puts together what one rendering of a pod's status depends on,
// and judges whether the facts at hand may be rendered at all.
//
// It owns no state and does nothing: values in, values out. What it promises is
// that a part of the node being away makes no status worse. Facts that a missing
// neighbour would contradict are held: Gather answers with a Hold that names what
// is waited for, and the caller keeps the last status.
package gather
