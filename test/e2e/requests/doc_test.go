// SPDX-License-Identifier: Apache-2.0

// Package requests_test gives the reference kubelet and Sextant the same random pods and
// compares what each asks its runtime for.
//
//	make requests                           300 pods
//	make requests REQUESTS='-pods=2000 -seed=7'
//	go test ./requests -v -seed=7 -only=31  one pod of a run again
//
// Each agent has a node of its own on a runtime of no time, which keeps the requests. Of every
// pod are compared: the sandbox and its containers, in order, as they were asked for; the
// images that were pulled, and with which credentials; what the mounts of a container hold,
// with owners and modes; and what the API server has of the pod's status. testdata/requests.txt
// lists what may differ, and why.
//
// TestLives does the same with pods whose containers end, fail, are probed and are restarted, static
// ones among them. Compared are what becomes of each pod at rest, with another image and at its end,
// its events, and in which order the runtime was asked for what; testdata/lives.txt is its list.
// TestFaults does so with pods for which the runtimes fail: the first calls of some method, before they
// have done anything or after they have done it all; testdata/faults.txt is its list beside that one.
// In TestKills the services of Sextant are killed all the time, and the kubelet is not;
// testdata/kills.txt is its list beside that of TestLives. In TestHangs the runtimes do not answer the
// first calls of some method for each pod; testdata/hangs.txt is its list beside those of TestFaults.
// In TestDeaths pods run, or are stuck on their way to that, and are deleted, again with less grace,
// by force, with a finalizer or by eviction, or their deadline is over; testdata/deaths.txt is its list
// beside that of TestLives.
//
// TestSources has pods with volumes and variables from ConfigMaps, Secrets and their own fields. These
// objects are there, come later, change, go and come back, and containers are restarted after that.
// Compared is what volumes and variables hold then, statuses, events and calls;
// testdata/sources.txt is its list. In TestSourcesKills the services of Sextant are killed meanwhile.
//
// TestDowntimes is TestLives with agents that are stopped, and started again after something has happened
// to each pod; testdata/downtimes.txt is its list beside that of TestLives. In TestAbsences pods are deleted
// while the runtime is away; testdata/absences.txt is its list beside that of TestDeaths. TestAdmissions
// gives nodes that have little one pod after the other, and deletes and resizes some;
// testdata/admissions.txt is its list. TestLogs asks both for the same logs with the same options;
// testdata/logs.txt is its list.
package requests_test
