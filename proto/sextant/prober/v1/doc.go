// SPDX-License-Identifier: Apache-2.0

// Package proberv1 is the contract of prober: probe verdicts. Its feeds are listed
// in prober.proto; the code beside that file is generated from it.
package proberv1
