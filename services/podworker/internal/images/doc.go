// SPDX-License-Identifier: Apache-2.0

// Package images knows what images the runtime stores, publishes them
// (podworker.images), and removes those not in use: old ones, and the longest
// unused when the disk runs full.
//
// It promises never to remove an image that a container on the node was made
// from, that a volume of one mounts, that a desired pod names which has not ended, that
// the runtime has pinned, or that it makes sandboxes of; and to remove nothing at all
// while it is not known what is in use.
//
// When images were last used is kept in memory only: after kill -9 every image
// counts as just seen, which delays removal and does no harm.
package images
