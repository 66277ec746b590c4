// SPDX-License-Identifier: Apache-2.0

// Package nodestatus renders the Node object: what to register, its status, its
// conditions and addresses, the patch that brings the API server from one to the
// other, and the events a change is worth. Values in, values out.
//
// Ready is judged from separate facts: the runtime answers, its network is ready,
// the node's resources are known, the sources of pods were read. A single slow pod
// is none of them. A part of the node that restarts is none either: facts once known
// are held, and only a part that is away for as long as Grace counts.
package nodestatus
