// SPDX-License-Identifier: Apache-2.0

// Package e2e_test takes Sextant nodes through what a user of a kubelet expects,
// on real parts: both generations of containerd, an API server, a registry, and
// every service as a process of its own, with the bus on and with the bus off.
//
// TestNodes makes two nodes, one with an old containerd and no bus, one with a new
// containerd and the bus, and runs, one after the other: a start before the API server
// is there; the behaviours (files *_test.go, one function each), all at once; kill -9 of
// each process where there is no bus (killmatrix has one); the end of the runtime; down
// and up; purge.
//
// Every test keeps to a namespace of its own. What the API server says about
// pods and nodes is followed by one watch (observer_test.go), so that waiting
// costs it nothing and no state in between is missed.
//
// TestCompare puts the same pods on a node of the reference kubelet and on one of
// Sextant, has kubectl drive both, and compares what both say; testdata/compare
// lists what differs, and why.
//
// TestTakeOver goes from the reference kubelet to Sextant on the same folders and
// back, and TestSkew mixes the services of two versions, both under running pods
// that must not notice. TestOffline takes a node's power away and starts it without
// an API server. With -short the first two leave out what takes its time.
//
//	go test -run TestNodes -kinds v2-nobus          another kind of node
//	go test -run 'TestNodes/.*/.*/probes'           one behaviour
package e2e_test
