// SPDX-License-Identifier: Apache-2.0

// Package statusv1 is the contract of status: what was written to the API server. Its
// feeds are listed in status.proto; the code beside that file is generated from it.
package statusv1
