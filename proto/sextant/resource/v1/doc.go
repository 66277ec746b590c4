// SPDX-License-Identifier: Apache-2.0

// Package resourcev1 is the contract of resource: what the node has, who holds it
// and what is used. Its feeds are listed in resource.proto; the code beside that file
// is generated from it.
package resourcev1
