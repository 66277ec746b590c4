// SPDX-License-Identifier: Apache-2.0

// Package step decides what is to be done about one pod.
//
// Step is a pure function of the desired pod, the journal's facts, what is
// observed, and the state of volumes, allocation and probes; it answers with a
// Plan: the new facts, the actions to start now (all of which may run side by
// side), the actions under way to cancel, why the pod and its containers wait,
// and when to look again at the latest. Apply folds the result of an action
// into the facts. The loop around them acts and nothing else, so every
// judgement can be replayed from a text file (testdata). It is pure: time is an input.
//
// The life of a pod:
//
//	                                                 ┌─── something runs ◄────┐
//	                                                 ▼             │          │
//	(seen) ─► pending ───admitted──► syncing ─► terminating ─► terminated ─► released ─► (forgotten)
//	          ▲ ├─refused─► rejected ───┘            ▲                          │             ▲
//	          │ │               └─────────────────── │ ──────────────────────── │ ────────────┘
//	          │ └─over, or nobody's ─────────────────┘                          │
//	          └─begins anew ────────────────────────────────────────────────────┘
//
// Only a static pod is ever admitted after it was refused. A pod starts over that
// ended because it was not to be here any more, and is: config lists it again, its
// manifest was removed and written again, the node did not go down after all.
//
// Something may run of a pod that is over: a runtime may carry out a call whose
// caller has given it up, or was killed. Whenever a record shows that, it is stopped,
// and what the pod held is given back again.
//
// What it promises. Nothing is created on the word of a record that is older
// than the last thing this process did (Observed.Verified), so there are never
// two live sandboxes of a pod nor two live instances of a container. Nothing is
// created once a pod is terminating. Grace only shrinks. A pod that was
// admitted is never judged again while something of it runs; one that resource has lost,
// after a boot, is admitted anew. A pod of which config says nothing is stopped only when
// config is complete.
//
// How it comes back. Facts is what the journal holds; its Memory part is empty
// after a start and grows again from what is observed.
package step
