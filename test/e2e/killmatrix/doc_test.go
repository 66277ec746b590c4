// Package killmatrix_test does to each process of a node, and to pairs of them,
// what a bad day does: kill -9, a stop of half a minute, a memory limit, a disk
// that takes nothing more; and to its surroundings: an API server that is away, a
// runtime that is killed. All at random moments, while pods that are Ready, pods
// that are not, pods that start and pods that end are on the node, with probes and
// volumes. A watch at the API server counts what must not happen.
//
// TestVolumeKills is about volumes alone: it kills volume and podworker under pods
// with every kind of them, and looks at each mount and at what each holds.
//
//	make kill-matrix                                 a kill -9 of each thirty times and the rest, about an hour
//	make kill-matrix KILLS='-rounds=2 -long=0'       a few minutes
//	go test ./killmatrix -seed=N                     the same moments, victims and faults again
//	make volume-kills                                200 kills of volume and podworker, about half an hour
package killmatrix_test
