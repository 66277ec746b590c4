// SPDX-License-Identifier: Apache-2.0

// Package killmatrix_test does to each process of a node, and to pairs of them,
// what a bad day does: kill -9, a stop of half a minute, a memory limit, a disk
// that takes nothing more; and to what is around them: an API server that is gone,
// a runtime that is killed, a clock that is set. All at random moments, while pods
// that are Ready, pods that are not, pods that start and pods that end are on the
// node, with probes and volumes. Watches at the API server and at the runtime count
// what must not happen.
//
//	make kill-matrix                     each service and the bus killed thirty times, and thirty pairs
//	make kill-matrix-pressure            the same while pods are evicted for want of memory
//	make kill-matrix-lasting             what lasts
//	make restarts                        each killed twenty times under twice as many pods, with the API server and without
//	go test ./killmatrix -short          a minute of each
//	go test ./killmatrix -seed=N         the same moments, victims and faults again
package killmatrix_test
