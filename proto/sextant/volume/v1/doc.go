// SPDX-License-Identifier: Apache-2.0

// Package volumev1 is the contract of volume: the mounts of each pod and what the
// node can mount. Its feeds are listed in volume.proto; the code beside that file is
// generated from it.
package volumev1
