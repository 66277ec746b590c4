// SPDX-License-Identifier: Apache-2.0

// Package conformance_test runs upstream's own end-to-end tests on a node of the
// reference kubelet and on one of Sextant's, one after the other on the same
// machine, control plane and runtime, and compares test by test.
//
// It needs root and what `test/env/install.sh runtime etcd kubernetes kubelet
// conformance` builds; `make conformance` sees to both.
package conformance_test
