// SPDX-License-Identifier: Apache-2.0

// Package compare turns what two node agents say into facts that can be compared,
// and judges the differences by a table of those that are meant.
//
// A fact is a line of text. A JSON document becomes one fact per leaf, a metrics
// page one per family and one per set of labels. What must differ between two
// nodes — names, addresses, ids, times, directories — is replaced by a
// placeholder first, by a Normalizer.
//
// A Table lists differences with the reason for each, as a user would want to
// read it:
//
//	# Why the reference kubelet says these and Sextant does not.
//	- kubelet_docker_*
//	# Why Sextant says more.
//	+ sextant_*
//	# This depends on the moment, so it may or may not differ.
//	?- kubelet_image_pull_duration_seconds*
//
// The sign is that of diff: "-" only the reference says it, "+" only Sextant does.
// A star stands for any text. A difference that no line matches is unlisted; a
// line that matches no difference is stale, unless it begins with "?".
//
// A MoveTable says how the values of metrics move together on two nodes that do the
// same; MoveRule has its form.
//
// Nothing here does I/O: the tests that fetch and the tables are elsewhere.
package compare
