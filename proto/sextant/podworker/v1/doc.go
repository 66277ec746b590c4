// SPDX-License-Identifier: Apache-2.0

// Package podworkerv1 is the contract of podworker: the lifecycle of every pod,
// its images and its logs. The CRI that podworker serves beside it is not here: that
// is runtime.v1 as it stands. Its feeds are listed in podworker.proto; the code beside
// that file is generated from it.
package podworkerv1
