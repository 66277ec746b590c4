// SPDX-License-Identifier: Apache-2.0

// Package feedv1 is the contract of feeds: how every owner serves its facts and
// every reader learns them. Generated from feed.proto; pkg/feed is its one
// implementation.
package feedv1
