// SPDX-License-Identifier: Apache-2.0

// Package install puts the package that a container image holds on the machine that runs
// the container: `sextant install`, in a privileged container with the machine's processes.
//
// It owns nothing. What dpkg knows it leaves to dpkg; elsewhere it unpacks the package as
// dpkg would, and runs its script. Killed in the middle, or failed, it can be called again:
// every file is replaced in one step, and a mark stays until all is done.
package install
