// SPDX-License-Identifier: Apache-2.0

// Package plegv1 is the contract of pleg: what runs. Its feeds are listed in
// pleg.proto; the code beside that file is generated from it.
package plegv1
