// SPDX-License-Identifier: Apache-2.0

// Package merge decides which pods the node should run, from what each source
// said last and what was accepted before. It is pure: values in, values out.
//
// The rules, in the order in which they apply:
//
//  1. A source that has not been heard since the process started keeps what was
//     accepted from it before: an API server that is away removes nothing.
//  2. An origin (a file, a URL) that exists but could not be read or is invalid
//     keeps the pods last accepted from it; when the origin is gone, so are its
//     pods.
//  3. Mirror pods are never desired. They are kept beside, and attached to the
//     static pod of the same full name.
//  4. Of several static pods of one full name, the one accepted before (from
//     the same origin) stays and the others are refused; else the first listed
//     wins. The same goes for pods that claim the same UID.
//  5. A pod keeps the time it was first seen for as long as its UID stays.
//  6. A static pod begins when its origin appears, and again when that is removed
//     and written again, also between two readings; what was there at the first
//     reading of a source has no such time, or the one it had.
//
// A static pod whose manifest was edited has a new UID, so the old pod leaves
// and the new one enters in the same call.
package merge
